//! {"ends": ["tool-error", "syntax"]}
return await tools.hasOwnProperty('x')
