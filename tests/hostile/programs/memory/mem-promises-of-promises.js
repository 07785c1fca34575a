//! {"ends": ["memory", "timeout", "deadlock"], "timeout_ms": 3000}
const again = () => Promise.resolve().then(again);
await again();
