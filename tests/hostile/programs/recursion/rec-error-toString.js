//! {"ends": ["returns", "throws", "memory"]}
const e = new Error();
Object.defineProperty(e, 'message', { get() { return String(e) } });
throw e
