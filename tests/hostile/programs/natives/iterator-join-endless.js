//! {"ends": ["timeout", "memory", "throws", "returns"]}
return Iterator.from({ next: () => ({ value: 1, done: false }) }).join('').length
