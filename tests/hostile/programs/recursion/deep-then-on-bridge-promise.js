//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
const call = tools.x(1);
let made = 0, failed = 0;
const seen = [];
function deep(f) { try { deep(f) } catch { } try { f() } catch { failed++ } }
deep(() => call.then(() => made++));
return await call
