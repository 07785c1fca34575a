//! {"ends": ["timeout", "memory", "deadlock"]}
const t = { then(r) { r(t) } };
return await t
