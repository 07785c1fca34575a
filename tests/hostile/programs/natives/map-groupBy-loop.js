//! {"ends": ["timeout"]}
for (;;) Object.groupBy(Array(1000).fill(1), x => x)
