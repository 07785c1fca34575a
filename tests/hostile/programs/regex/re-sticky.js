//! {"ends": ["timeout"]}
const r = /(a+)+b/y;
for (;;) { r.lastIndex = 0; r.exec('a'.repeat(20)) }
