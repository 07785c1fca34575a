//! {"ends": ["throws"]}
const e = new Error('x');
e.stack = ('    at f (<input>:1:1)\n').repeat(1e5);
throw e
