//! {"ends": ["timeout"]}
return Iterator.from({ next: () => ({ done: false, value: 1 }) }).filter(() => false).next()
