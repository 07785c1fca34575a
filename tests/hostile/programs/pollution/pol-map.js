//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
for (const attack of [
  () => { Map.prototype.get = () => ({}) },
  () => { Map.prototype.set = () => {} },
  () => { Map.prototype.forEach = () => {} }
]) { try { attack() } catch {} }
return await tools.x(1)
