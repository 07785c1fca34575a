//! {"ends": ["timeout", "memory", "deadlock"]}
async function f() { await null; return f() }
return f()
