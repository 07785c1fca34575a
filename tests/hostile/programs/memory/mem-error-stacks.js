//! {"ends": ["memory", "timeout", "deadlock"]}
const a = [];
for (;;) a.push(new Error('x'.repeat(100)))
