//! {"ends": ["timeout"]}
const s = '\u1234'.repeat(1e5);
for (;;) unescape(escape(s))
