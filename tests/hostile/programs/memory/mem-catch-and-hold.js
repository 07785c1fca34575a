//! {"ends": ["memory", "timeout", "deadlock", "throws"]}
const a = [];
for (;;) { try { for (;;) a.push(new Array(1000).fill(1)) } catch { } }
