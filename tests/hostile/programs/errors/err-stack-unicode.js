//! {"ends": ["throws"]}
const e = new Error('x');
e.stack = '\ud800 <input>:1:1 \u0000';
throw e
