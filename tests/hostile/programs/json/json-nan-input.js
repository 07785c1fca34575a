//! {"ends": ["returns"], "value": [[null, null, null, 0]], "calls": [["x", [null, null, null, 0]]]}
return await tools.x([NaN, Infinity, -Infinity, -0])
