//! {"ends": ["timeout"]}
return Iterator.from({ next: () => ({ value: 1, done: false }) }).includes(2)
