//! {"ends": ["throws"]}
const e = new Error('x');
Object.defineProperty(e, 'name', { get() { throw 1 } });
throw e
