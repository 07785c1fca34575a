//! {"ends": ["throws", "memory"]}
const o = { [Symbol.iterator]() { return [...o] } };
return [...o]
