//! {"ends": ["memory", "timeout", "deadlock"]}
const a = [];
async function f() { await new Promise(() => {}) }
for (;;) a.push(f())
