//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
for (const attack of [
  () => { JSON.stringify = () => '"evil"' },
  () => { JSON.parse = () => 'evil' },
  () => { JSON = null }
]) { try { attack() } catch {} }
return await tools.x(1)
