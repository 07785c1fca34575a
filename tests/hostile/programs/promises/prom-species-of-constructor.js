//! {"ends": ["returns"], "value": true, "calls": [["x", 1]]}
const a = tools.x(1);
const C = a.constructor[Symbol.species];
const same = C === Promise;
await a;
return same
