//! {"ends": ["throws"], "message": "5"}
const e = new Error('x');
e.message = 5n;
throw e
