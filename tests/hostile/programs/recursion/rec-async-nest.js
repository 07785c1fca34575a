//! {"ends": ["throws", "memory"]}
async function f(n) { return n ? await f(n - 1) : 1 }
return await f(1e5)
