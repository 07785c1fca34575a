//! {"ends": ["timeout", "memory", "throws", "returns"]}
for (;;) (1e20).toFixed(100)
