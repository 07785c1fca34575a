//! {"ends": ["memory", "timeout", "deadlock"]}
const a = [];
for (let i = 0; ; i++) a.push(new RegExp('a' + i))
