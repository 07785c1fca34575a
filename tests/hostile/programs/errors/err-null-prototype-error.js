//! {"ends": ["throws"]}
const e = new Error('m');
Object.setPrototypeOf(e, null);
throw e
