//! {"ends": ["tool-error", "syntax"], "exec": {"ends": ["throws"]}}
return await tools['__proto__'](1)
