//! {"ends": ["returns"], "value": [[1], "number"], "calls": [["x", 1]]}
for (const attack of [
  () => { Reflect.apply = () => 'evil' },
  () => { Reflect.construct = () => 'evil' },
  () => { Reflect.get = () => 'evil' }
]) { try { attack() } catch {} }
return [await tools.x(1), typeof Date.now()]
