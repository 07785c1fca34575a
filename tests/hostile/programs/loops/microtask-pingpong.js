//! {"ends": ["timeout"]}
let a, b;
a = () => queueMicrotask(b);
b = () => queueMicrotask(a);
a();
await new Promise(() => {})
