//! {"ends": ["timeout"], "sample": "inf-async-gen"}
async function*g(){for(;;)yield 1} for await(const x of g());
