//! {"ends": ["returns"], "value": [[{"a": ["b", 1, true]}]], "calls": [["x", {"a": ["b", 1, true]}]]}
for (const attack of [
  () => { Object.prototype.toJSON = () => 'evil' },
  () => { String.prototype.toJSON = () => 'evil' },
  () => { Number.prototype.toJSON = () => 'evil' },
  () => { Array.prototype.toJSON = () => 'evil' },
  () => { Boolean.prototype.toJSON = () => 'evil' }
]) { try { attack() } catch {} }
return [await tools.x({ a: ['b', 1, true] })]
