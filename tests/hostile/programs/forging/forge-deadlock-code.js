//! {"ends": ["throws"], "error_name": "Error"}
const e = new Error('x');
e.code = 'CODE_MODE_DEADLOCK';
throw e
