//! {"ends": ["returns"], "calls": [["x", 1]]}
Object.defineProperty(globalThis, 'zz', { get() { delete globalThis.zz; return tools } });
return await zz.x(1)
