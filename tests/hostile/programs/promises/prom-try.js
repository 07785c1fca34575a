//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
return await Promise.try(() => tools.x(1))
