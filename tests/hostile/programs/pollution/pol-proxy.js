//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
for (const attack of [
  () => { globalThis.Proxy = null }
]) { try { attack() } catch {} }
return await tools.x(1)
