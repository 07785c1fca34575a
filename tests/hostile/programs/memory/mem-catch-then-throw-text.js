//! {"ends": ["memory", "timeout", "deadlock", "throws"]}
const a = [];
try { for (;;) a.push(new Array(1000).fill(1)) } catch {}
throw 'out'
