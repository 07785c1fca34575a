//! {"ends": ["returns"], "value": [[1], false], "calls": [["x", 1]]}
for (const attack of [
  () => { Object.prototype.then = r => r('evil') }
]) { try { attack() } catch {} }
return [await tools.x(1), 'then' in {}]
