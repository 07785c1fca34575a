//! {"ends": ["throws"], "error_name": "TypeError"}
return await tools.x(undefined)
