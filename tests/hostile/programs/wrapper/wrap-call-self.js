//! {"ends": ["returns"], "value": 3}
globalThis.n = (globalThis.n ?? 0) + 1;
if (n < 3) return await arguments.callee();
return n
