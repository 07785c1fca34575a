//! {"ends": ["serialization"]}
try { for (;;) text('x'.repeat(8000)) } catch { return 'caught' }
