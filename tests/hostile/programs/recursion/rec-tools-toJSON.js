//! {"ends": ["throws", "memory"]}
const o = { toJSON() { return tools.x(o) } };
return await tools.x(o)
