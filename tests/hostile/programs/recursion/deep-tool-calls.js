//! {"ends": ["bridge-limit", "returns", "throws", "detached"], "calls": [["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1], ["x", 1]], "value": true}
let made = 0, failed = 0;
const seen = [];
function deep(f) { try { deep(f) } catch { } try { f() } catch { failed++ } }
deep(() => { seen.push(tools.x(1)); made++ });
const all = await Promise.allSettled(seen);
return all.filter(r => r.status === 'fulfilled').length === 32
