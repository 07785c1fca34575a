//! {"ends": ["returns"], "value": [[1], 1, 2], "calls": [["x", 1]]}
for (const attack of [
  () => { Array.prototype[Symbol.iterator] = () => ({ next: () => ({ done: true }) }) },
  () => { Object.getPrototypeOf([][Symbol.iterator]()).next = () => ({ done: true }) }
]) { try { attack() } catch {} }
return [await tools.x(1), ...[1, 2]]
