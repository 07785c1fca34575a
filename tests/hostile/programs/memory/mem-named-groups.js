//! {"ends": ["memory", "timeout", "deadlock"]}
const a = [];
for (;;) a.push('aaaa'.match(/(?<x>a)(?<y>a)/d))
