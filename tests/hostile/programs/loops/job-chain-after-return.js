//! {"ends": ["returns"], "exec": {"ends": ["timeout"], "timeout_ms": 400}}
const again = () => queueMicrotask(again);
again();
return 1
