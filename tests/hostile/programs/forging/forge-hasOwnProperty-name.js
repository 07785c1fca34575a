//! {"ends": ["tool-error", "syntax"], "exec": {"ends": ["returns"]}}
return await tools.hasOwnProperty('x')
