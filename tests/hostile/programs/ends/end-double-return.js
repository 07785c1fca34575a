//! {"ends": ["returns"], "value": 2}
try { return 1 } finally { return 2 }
