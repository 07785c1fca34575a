//! {"ends": ["throws"], "error_name": "TypeError"}
return await tools[Symbol.iterator](1)
