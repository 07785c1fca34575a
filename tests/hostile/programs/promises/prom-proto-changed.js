//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
const a = tools.x(1);
Object.setPrototypeOf(a, null);
return await a
