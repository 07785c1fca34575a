//! {"ends": ["throws", "memory"]}
const o = { [Symbol.hasInstance](v) { return v instanceof o } };
return {} instanceof o
