//! {"ends": ["returns"], "value": ["a-c", false], "calls": []}
for (const attack of [
  () => { RegExp.prototype.exec = () => null },
  () => { RegExp.prototype[Symbol.replace] = () => 'evil' },
  () => { RegExp.prototype.test = () => true }
]) { try { attack() } catch {} }
return ['abc'.replace(/b/, '-'), /z/.test('a')]
