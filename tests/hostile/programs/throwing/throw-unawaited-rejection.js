//! {"ends": ["throws"], "message": "r"}
await Promise.reject(new Error('r'))
