//! {"ends": ["throws"]}
const e = new Error('x');
Object.defineProperty(e, 'stack', { value: { toString() { return 's' } } });
throw e
