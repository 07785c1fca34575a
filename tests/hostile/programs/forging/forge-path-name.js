//! {"ends": ["tool-error", "syntax"]}
return await tools.x.call(null, 1)
