//! {"ends": ["throws"], "message": "f"}
try { return 1 } finally { throw new Error('f') }
