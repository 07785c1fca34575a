//! {"ends": ["returns"], "value": 20000, "calls": [["x", 1]]}
const call = tools.x(1);
let n = 0;
for (let i = 0; i < 2e4; i++) call.then(() => n++);
await call;
await null;
return n
