//! {"ends": ["timeout", "memory"]}
return [...{ [Symbol.iterator]: () => ({ next: () => ({ value: 0, done: false }) }) }].length
