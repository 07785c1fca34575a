//! {"ends": ["returns"], "value": ["fulfilled", "rejected"], "calls": [["x", 1], ["fail", 1]]}
return (await Promise.allSettled([tools.x(1), tools.fail(1)])).map(r => r.status)
