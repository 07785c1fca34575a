//! {"ends": ["timeout", "returns"], "sample": "safe-uncatchable-in-async-gen"}
async function*g(){try{for(;;);}finally{yield 1}}for await(const x of g()){return x}
