//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
for (const attack of [
  () => { Object.getPrototypeOf(Object.getPrototypeOf((async function* () {})())).next = () => 'evil' },
  () => { Object.getPrototypeOf((async function* () {}).prototype)[Symbol.asyncIterator] = () => 'evil' }
]) { try { attack() } catch {} }
async function* g() { yield await tools.x(1) }
for await (const v of g()) return v
