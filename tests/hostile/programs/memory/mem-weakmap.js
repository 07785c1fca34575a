//! {"ends": ["memory", "timeout", "deadlock"]}
const m = new WeakMap(), k = [];
for (;;) { const o = {}; k.push(o); m.set(o, 1) }
