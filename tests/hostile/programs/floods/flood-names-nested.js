//! {"ends": ["throws", "memory"], "error_name": "RangeError", "exec": {"error_name": "TypeError"}}
let t = tools;
for (let i = 0; i < 1e4; i++) t = t['n' + i]
