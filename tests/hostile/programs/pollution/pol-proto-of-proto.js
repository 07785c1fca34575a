//! {"ends": ["returns"], "value": [true, true, true], "calls": []}
for (const attack of [
  () => { Object.setPrototypeOf(Object.prototype, { pwn: 1 }) },
  () => { Object.prototype.__proto__ = { pwn: 1 } },
  () => { Object.setPrototypeOf(Array.prototype, { pwn: 1 }) },
  () => { Object.setPrototypeOf(Function.prototype, { pwn: 1 }) }
]) { try { attack() } catch {} }
return [({}).pwn === undefined, [].pwn === undefined, (() => {}).pwn === undefined]
