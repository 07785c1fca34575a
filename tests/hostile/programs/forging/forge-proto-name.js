//! {"ends": ["tool-error", "syntax"]}
return await tools['__proto__'](1)
