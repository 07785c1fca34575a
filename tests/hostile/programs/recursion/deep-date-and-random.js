//! {"ends": ["returns"], "value": true}
let made = 0, failed = 0;
const seen = [];
function deep(f) { try { deep(f) } catch { } try { f() } catch { failed++ } }
deep(() => { new Date(); Math.random(); Date.now() });
const r = Math.random();
return r >= 0 && r < 1 && Date.now() > 1e12
