//! {"ends": ["throws"], "error_name": "RangeError", "exec": {"error_name": "TypeError"}}
return await tools['x'.repeat(1000)](1)
