//! {"ends": ["returns"], "value": [1], "calls": [["x", 1], ["y", 2]]}
try { return await tools.x(1) } finally { await tools.y(2) }
