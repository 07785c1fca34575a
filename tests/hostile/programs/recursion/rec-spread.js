//! {"ends": ["throws", "memory"]}
const f = (...a) => f(...a, 1);
return f()
