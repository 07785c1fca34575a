//! {"ends": ["memory", "deadlock", "returns", "throws", "engine"], "calls": null}
const call = tools.x('x'.repeat(100000));
const a = [];
for (let n = 1e5; n >= 1; n = n / 2 | 0) { try { for (;;) a.push(new Array(n).fill(1)) } catch {} }
return (await call)[0].length + a.length
