//! {"codes": [], "result": {}}
globalThis.__codemode_result__ = Promise.reject(new Error('x'));
