//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
return { then(resolve) { tools.x(1).then(resolve) } }
