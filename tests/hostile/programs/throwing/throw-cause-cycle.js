//! {"ends": ["throws"]}
const e = new Error('x');
e.cause = e;
throw e
