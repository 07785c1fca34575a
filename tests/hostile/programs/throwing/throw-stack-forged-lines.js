//! {"ends": ["throws"]}
const e = new Error('x');
e.stack = '    at f (<input>:99999999999:1)\n    at g (<input>:-1:x)\n<input>:1e9:1\n<input>:\n<input>::';
throw e
