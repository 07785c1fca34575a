//! {"ends": ["tool-error", "syntax"]}
return await tools[0](1)
