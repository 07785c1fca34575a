//! {"ends": ["returns"], "value": {"a": 1}}
const r = { a: 1 };
queueMicrotask(() => queueMicrotask(() => queueMicrotask(() => queueMicrotask(() => { r.a = 2 }))));
return r
