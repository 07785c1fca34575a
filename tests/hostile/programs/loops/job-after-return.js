//! {"ends": ["timeout", "returns"]}
queueMicrotask(() => { for (;;); });
return 1
