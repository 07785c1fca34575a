//! {"ends": ["timeout", "memory"]}
const [...a] = { [Symbol.iterator]: () => ({ next: () => ({ value: 0, done: false }) }) };
