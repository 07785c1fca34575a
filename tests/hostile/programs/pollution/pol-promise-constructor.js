//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
for (const attack of [
  () => { Promise.prototype.constructor = class {} },
  () => { Object.defineProperty(Promise.prototype, 'constructor', { value: class {} }) }
]) { try { attack() } catch {} }
return await tools.x(1)
