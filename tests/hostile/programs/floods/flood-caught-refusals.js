//! {"ends": ["returns"], "calls": null, "value": true}
let refused = 0;
const open = Array.from({ length: 32 }, (_, i) => tools.x(i));
for (let i = 0; i < 3000; i++) try { await tools.x(i) } catch { refused++ }
await Promise.all(open);
return refused > 2000
