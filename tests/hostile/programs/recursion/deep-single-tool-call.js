//! {"ends": ["returns"], "value": true, "calls": null}
let depth = 0;
function fall() { depth++; fall() }
try { fall() } catch {}
const bottom = depth, made = [];
function at(n) { if (n > 0) return at(n - 1); made.push(tools.x(1)) }
for (let n = bottom + 5; n > bottom - 60; n--) try { at(n) } catch {}
const all = await Promise.allSettled(made);
return all.every(r => r.status === 'fulfilled')
