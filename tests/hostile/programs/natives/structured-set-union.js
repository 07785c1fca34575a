//! {"ends": ["timeout", "memory", "throws", "returns"]}
const a = new Set(Array.from({ length: 2e4 }, (_, i) => i));
for (;;) a.union(a)
