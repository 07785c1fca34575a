//! {"ends": ["memory", "timeout", "deadlock"]}
const a = [];
for (let i = 0; ; i++) { try { a.push(tools['n' + i % 500][('m' + i).repeat(10)]) } catch { a.push([]) } }
