//! {"ends": ["returns"], "value": "caught", "calls": [["fail", 1]]}
try { await tools.fail(1) } catch { return 'caught' }
