//! {"ends": ["returns", "memory", "deadlock", "throws", "serialization", "engine"]}
const a = [];
return { toJSON() { for (let n = 1e5; n >= 1; n = n / 2 | 0) { try { for (;;) a.push(new Array(n).fill(1)) } catch {} } return 'x'.repeat(100) } }
