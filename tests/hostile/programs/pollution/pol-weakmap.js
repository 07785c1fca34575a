//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
for (const attack of [
  () => { WeakMap.prototype.get = () => ({ observed: true }) },
  () => { WeakMap.prototype.set = () => {} },
  () => { WeakMap.prototype.has = () => true }
]) { try { attack() } catch {} }
return await tools.x(1)
