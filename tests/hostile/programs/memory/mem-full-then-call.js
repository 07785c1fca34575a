//! {"ends": ["returns", "memory", "deadlock", "throws", "serialization", "engine"], "calls": null}
const a = [];
for (let n = 1e5; n >= 1; n = n / 2 | 0) { try { for (;;) a.push(new Array(n).fill(1)) } catch {} }
let made = 0;
for (let i = 0; i < 40; i++) try { await tools.x(1); made++ } catch {}
return made
