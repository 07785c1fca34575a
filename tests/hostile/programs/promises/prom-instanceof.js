//! {"ends": ["returns"], "value": [true, "[object Promise]"], "calls": [["x", 1]]}
const a = tools.x(1);
const r = [a instanceof Promise, Object.prototype.toString.call(a)];
await a;
return r
