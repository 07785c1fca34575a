//! {"ends": ["throws", "memory"]}
const o = { toJSON() { return JSON.stringify(o) } };
return JSON.stringify(o)
