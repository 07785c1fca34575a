//! {"ends": ["memory", "timeout", "deadlock"]}
const a = [];
function* g() { yield 1 }
for (;;) { const x = g(); x.next(); a.push(x) }
