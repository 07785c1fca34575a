//! {"ends": ["throws"], "error_name": "RangeError"}
return await tools['x'.repeat(1000)](1)
