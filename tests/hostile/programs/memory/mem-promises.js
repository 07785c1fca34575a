//! {"ends": ["memory", "timeout", "deadlock"]}
const a = [];
for (;;) a.push(new Promise(() => {}))
