//! {"ends": ["returns"], "value": true}
let made = 0, failed = 0;
const seen = [];
function deep(f) { try { deep(f) } catch { } try { f() } catch { failed++ } }
deep(() => queueMicrotask(() => made++));
await null;
return made > 0
