//! {"ends": ["throws"], "error_name": "TypeError", "exec": {"ends": ["returns"]}}
return await tools.constructor(1)
