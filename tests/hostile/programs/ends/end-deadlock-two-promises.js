//! {"ends": ["deadlock"]}
let b;
const a = (async () => { await null; return await b })();
b = (async () => await a)();
return await a
