//! {"ends": ["returns", "memory", "deadlock", "throws", "serialization", "engine"]}
const a = [];
for (let n = 1e5; n >= 1; n = n / 2 | 0) { try { for (;;) a.push(new Array(n).fill(1)) } catch {} }
for (let i = 0; i < 500; i++) try { console.log('x'.repeat(50)) } catch {}
return 1
