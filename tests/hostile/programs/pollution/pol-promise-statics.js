//! {"ends": ["returns"], "value": [[1]], "calls": [["x", 1]]}
for (const attack of [
  () => { Promise.resolve = () => 'evil' },
  () => { Promise.all = () => 'evil' },
  () => { globalThis.Promise = class {} }
]) { try { attack() } catch {} }
return await Promise.all([tools.x(1)])
