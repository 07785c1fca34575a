//! {"ends": ["returns"]}
const it = { [Symbol.iterator]() { return { i: 0, next() { return { done: this.i++ > 2, value: undefined } }, return() { throw 1 } } } };
try { const [a = (() => { throw 2 })()] = it; } catch (e) { return e }
