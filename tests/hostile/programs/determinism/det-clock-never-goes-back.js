//! {"ends": ["returns"], "value": true, "calls": [["x", 1]]}
for (let i = 0; i < 1e6; i++) Date.now();
const a = Date.now();
await tools.x(1);
return Date.now() > a
