//! {"ends": ["tool-error", "syntax"]}
return await tools.$search({ toJSON: () => ['x'] })
