//! {"ends": ["throws"], "message": "missing tool name"}
return await tools('x')
