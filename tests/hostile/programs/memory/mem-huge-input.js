//! {"ends": ["tool-error", "serialization", "memory", "throws"]}
return await tools.x('x'.repeat(15e6))
