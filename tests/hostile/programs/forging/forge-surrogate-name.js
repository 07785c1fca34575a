//! {"ends": ["tool-error", "syntax"]}
return await tools['x\ud800'](1)
