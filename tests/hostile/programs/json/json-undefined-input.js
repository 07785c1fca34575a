//! {"ends": ["throws"], "error_name": "TypeError", "exec": {"ends": ["returns"], "calls": [["x", null]]}}
return await tools.x(undefined)
