//! {"ends": ["returns"], "value": true, "calls": [["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1]]}
const open = Array.from({ length: 32 }, () => tools.x(1));
let made = 0, failed = 0;
const seen = [];
function deep(f) { try { deep(f) } catch { } try { f() } catch { failed++ } }
deep(() => { tools.x(2).catch(() => {}) });
await Promise.all(open);
return true
