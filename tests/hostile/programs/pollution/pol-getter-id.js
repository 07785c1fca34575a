//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
for (const attack of [
  () => { Object.defineProperty(Object.prototype, 'id', { get() { return 1 } }) },
  () => { Object.defineProperty(Object.prototype, 'error', { get() { return { name: 'e' } } }) },
  () => { Object.defineProperty(Object.prototype, 'value', { get() { return 'evil' } }) }
]) { try { attack() } catch {} }
return await tools.x(1)
