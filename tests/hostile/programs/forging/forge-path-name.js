//! {"ends": ["tool-error", "syntax"], "exec": {"ends": ["returns"], "calls": [["x", 1]]}}
return await tools.x.call(null, 1)
