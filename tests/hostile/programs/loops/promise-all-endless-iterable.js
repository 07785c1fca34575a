//! {"ends": ["timeout", "memory", "deadlock"]}
return await Promise.all({ [Symbol.iterator]: () => ({ next: () => ({ value: 1, done: false }) }) })
