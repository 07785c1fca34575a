//! {"ends": ["throws"], "error_name": "N"}
const e = Object.freeze(Object.assign(new Error('x'), { name: 'N' }));
throw e
