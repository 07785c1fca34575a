//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
return await Object.freeze(tools.x(1))
