//! {"ends": ["throws"], "error_name": "RangeError"}
throw new Proxy(new RangeError('r'), {})
