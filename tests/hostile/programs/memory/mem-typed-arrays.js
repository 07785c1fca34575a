//! {"ends": ["memory", "timeout", "deadlock"]}
const a = [];
for (;;) a.push(new Uint8Array(1e6))
