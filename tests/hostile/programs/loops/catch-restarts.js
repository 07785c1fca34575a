//! {"ends": ["timeout"]}
for (;;) { try { throw 1 } catch {} }
