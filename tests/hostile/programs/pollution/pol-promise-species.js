//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
for (const attack of [
  () => { Object.defineProperty(Promise, Symbol.species, { value: class { constructor(f) { f(() => {}, () => {}) } } }) }
]) { try { attack() } catch {} }
return await tools.x(1).then(a => a)
