//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
let made = 0, failed = 0;
const seen = [];
function deep(f) { try { deep(f) } catch { } try { f() } catch { failed++ } }
let n = 0;
deep(() => { void tools['n' + n++ % 300].a.b });
return await tools.x(1)
