//! {"ends": ["tool-error", "syntax"]}
return await tools['x\0'](1)
