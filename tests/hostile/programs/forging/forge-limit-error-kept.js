//! {"ends": ["bridge-limit"], "calls": [["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1]]}
let kept;
const open = Array.from({ length: 40 }, () => tools.x(1));
for (const r of await Promise.allSettled(open)) if (r.reason) kept = r.reason;
throw kept
