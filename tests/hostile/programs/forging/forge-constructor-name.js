//! {"ends": ["throws"], "error_name": "TypeError"}
return await tools.constructor(1)
