//! {"ends": ["throws"], "error_name": "RangeError"}
throw Object.freeze(new RangeError('r'))
