//! {"ends": ["serialization", "memory"]}
return Object.fromEntries(Array.from({ length: 2e5 }, (_, i) => ['k' + i, i]))
