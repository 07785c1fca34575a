//! {"ends": ["serialization", "timeout"], "timeout_ms": 2000}
for (;;) text('')
