//! {"ends": ["returns"], "value": [2], "calls": [["fail", 1], ["x", 2]]}
return await Promise.any([tools.fail(1), tools.x(2)])
