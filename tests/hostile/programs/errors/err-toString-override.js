//! {"ends": ["throws"], "message": "m"}
const e = new Error('m');
e.toString = () => { throw 1 };
throw e
