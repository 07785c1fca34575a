//! {"ends": ["throws"], "calls": []}
const e = new Error('x');
Object.defineProperty(e, 'stack', { get() { tools.admin(1); return '' } });
throw e
