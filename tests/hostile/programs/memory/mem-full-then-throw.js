//! {"ends": ["throws", "memory", "deadlock"]}
const a = [];
for (let n = 1e5; n >= 1; n = n / 2 | 0) { try { for (;;) a.push(new Array(n).fill(1)) } catch {} }
throw new Error('done')
