//! {"ends": ["detached", "memory", "deadlock", "returns", "throws", "engine"], "calls": null}
const a = [];
for (let n = 1e5; n >= 1; n = n / 2 | 0) { try { for (;;) a.push(new Array(n).fill(1)) } catch {} }
const made = [];
for (let i = 0; i < 20; i++) try { made.push(tools.x(i)) } catch {}
return await Promise.all(made)
