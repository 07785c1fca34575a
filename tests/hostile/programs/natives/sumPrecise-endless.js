//! {"ends": ["timeout"]}
return Math.sumPrecise({ [Symbol.iterator]: () => ({ next: () => ({ value: 1, done: false }) }) })
