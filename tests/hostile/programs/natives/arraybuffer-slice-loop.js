//! {"ends": ["timeout"]}
const b = new ArrayBuffer(1e7);
for (;;) b.slice(0)
