//! {"ends": ["tool-error", "syntax"], "exec": {"ends": ["throws"]}}
return await tools.$search({ toJSON: () => ['x'] })
