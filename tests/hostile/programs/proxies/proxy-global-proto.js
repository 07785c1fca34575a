//! {"ends": ["returns"], "value": "object", "calls": [["x", 1]]}
let hits = 0;
try { Object.setPrototypeOf(globalThis, new Proxy({}, { get() { hits++ }, has() { hits++; return true } })) } catch {}
await tools.x(1);
return typeof JSON
