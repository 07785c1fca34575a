//! {"codes": ["UNCAUGHT_EXCEPTION"]}
setTimeout(() => { throw new RangeError('in timer'); }, 1);
await new Promise((r) => setTimeout(r, 20));
globalThis.__codemode_result__ = 1;
