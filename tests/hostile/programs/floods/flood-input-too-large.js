//! {"ends": ["serialization", "tool-error"]}
return await tools.x('x'.repeat(2e6))
