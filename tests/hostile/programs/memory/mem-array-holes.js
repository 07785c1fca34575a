//! {"ends": ["memory", "timeout", "deadlock"]}
const a = [];
for (let i = 0; ; i += 1000) a[i] = 1
