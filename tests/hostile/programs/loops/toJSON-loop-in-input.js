//! {"ends": ["timeout"]}
return await tools.x({ toJSON() { for (;;); } })
