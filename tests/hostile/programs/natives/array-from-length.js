//! {"ends": ["throws", "timeout", "memory"], "sample": "array-from-length"}
return Array.from({length:2**32-1}).length
