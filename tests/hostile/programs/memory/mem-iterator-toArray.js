//! {"ends": ["memory", "timeout", "deadlock"]}
return Iterator.from({ next: () => ({ value: 'x'.repeat(1000), done: false }) }).toArray().length
