//! {"ends": ["returns"], "value": true, "calls": [["x", 1]]}
const a = Date.now();
await tools.x(1);
return Date.now() >= a
