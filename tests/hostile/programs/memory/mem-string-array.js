//! {"ends": ["memory", "timeout", "deadlock"]}
const a = [];
for (let i = 0; ; i++) a.push('s' + i)
