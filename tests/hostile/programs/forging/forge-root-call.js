//! {"ends": ["throws"], "message": "missing tool name", "exec": {"message": "not a function"}}
return await tools('x')
