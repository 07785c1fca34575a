//! {"ends": ["returns"], "value": [[1], [2]], "calls": [["x", 1], ["y", 2]]}
return await Array.fromAsync([tools.x(1), tools.y(2)])
