//! {"ends": ["tool-error", "syntax"], "exec": {"ends": ["throws"]}}
return await tools['x\0'](1)
