//! {"ends": ["memory", "timeout", "deadlock"]}
for (;;) queueMicrotask(() => {})
