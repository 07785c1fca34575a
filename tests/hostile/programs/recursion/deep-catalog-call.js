//! {"ends": ["returns"], "value": true}
let made = 0, failed = 0;
const seen = [];
function deep(f) { try { deep(f) } catch { } try { f() } catch { failed++ } }
deep(() => { if (made < 60) seen.push(tools.$search('x')); made++ });
await Promise.allSettled(seen);
return true
