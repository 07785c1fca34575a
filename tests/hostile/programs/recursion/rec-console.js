//! {"ends": ["returns", "throws", "memory"]}
const o = { toJSON() { console.log(o) } };
console.log(o);
return 1
