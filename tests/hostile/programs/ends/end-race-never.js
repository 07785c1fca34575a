//! {"ends": ["detached"], "calls": [["x", 1], ["never", 2]], "exec": {"ends": ["waits"]}}
return await Promise.race([tools.x(1), tools.never(2)])
