//! {"ends": ["returns"], "value": [{"a": 1}], "calls": [["x", {"a": 1}]]}
const o = { a: 1 };
const call = tools.x(o);
o.a = 2;
return await call
