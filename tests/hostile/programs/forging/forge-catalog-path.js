//! {"ends": ["tool-error", "syntax"]}
return await tools.$search.x('x')
