//! {"ends": ["returns"], "value": ["1"], "calls": [["x", "1"]]}
for (const attack of [
  () => { Object.prototype[Symbol.toPrimitive] = () => 'evil' },
  () => { String.prototype[Symbol.toPrimitive] = () => 'evil' }
]) { try { attack() } catch {} }
return await tools.x(`${1}`)
