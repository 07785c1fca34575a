//! {"ends": ["returns"], "value": [true, false]}
try { await calendar.broken({}) } catch (e) { return [e instanceof Error, e.message.includes('zero')] }
