//! {"ends": ["tool-error", "syntax"], "exec": {"ends": ["throws"]}}
return await tools[0](1)
