//! {"ends": ["returns"], "value": [[1, 2], ["a", "b"], [[1, 2]]], "calls": []}
for (const attack of [
  () => { Object.getPrototypeOf([].values().map(x => x)).next = () => 'evil' },
  () => { Object.getPrototypeOf(''.matchAll(/a/g)).next = () => 'evil' },
  () => { Object.getPrototypeOf(new Map().entries()).next = () => 'evil' },
  () => { Object.getPrototypeOf(new Set().values()).next = () => 'evil' },
  () => { Object.getPrototypeOf(''[Symbol.iterator]()).next = () => 'evil' },
  () => { Object.getPrototypeOf(Iterator.from({ next() {} })).next = () => 'evil' }
]) { try { attack() } catch {} }
return [[1, 2].values().map(x => x).toArray(), [...'ab'], [...new Map([[1, 2]])]]
