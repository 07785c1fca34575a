//! {"ends": ["tool-error"], "calls": [["fail", 1], ["x", 1]]}
let kept;
try { await tools.fail(1) } catch (e) { kept = e }
await tools.x(1);
throw kept
