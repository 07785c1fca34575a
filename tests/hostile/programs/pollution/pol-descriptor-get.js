//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
for (const attack of [
  () => { Object.prototype.get = () => 'evil' },
  () => { Object.prototype.set = () => 'evil' },
  () => { Object.prototype.writable = true }
]) { try { attack() } catch {} }
return await tools.x(1)
