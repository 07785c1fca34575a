//! {"ends": ["returns"], "value": 1}
const a = Date.now();
for (let i = 0; i < 3e6; i++);
return Date.now() - a
