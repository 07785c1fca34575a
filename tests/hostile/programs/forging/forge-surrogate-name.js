//! {"ends": ["tool-error", "syntax"], "exec": {"ends": ["throws"]}}
return await tools['x\ud800'](1)
