//! {"ends": ["returns"]}
const w = new WeakMap();
let k = {};
for (let i = 0; i < 1e5; i++) { const n = {}; w.set(n, k); k = n }
return w.has(k)
