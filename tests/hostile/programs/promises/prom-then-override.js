//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
const a = tools.x(1);
try { a.then = r => r('evil') } catch {}
return await a
