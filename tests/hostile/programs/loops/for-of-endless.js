//! {"ends": ["timeout"]}
for (const x of { [Symbol.iterator]: () => ({ next: () => ({ done: false }) }) });
