//! {"ends": ["returns"], "value": 1, "exec": {"ends": ["serialization"]}}
const o = { a: Array(1e4).fill('x') };
for (let i = 0; i < 200; i++) console.log(o);
return 1
