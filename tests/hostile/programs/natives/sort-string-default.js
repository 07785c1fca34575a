//! {"ends": ["timeout"]}
const a = Array.from({ length: 1e5 }, (_, i) => ({ toString: () => String(i) }));
for (;;) a.sort()
