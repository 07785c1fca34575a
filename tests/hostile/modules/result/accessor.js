//! {"codes": [], "result": 1}
let threw = 0;
try { Object.defineProperty(globalThis, '__codemode_result__', { get() { return 'pwn'; } }); } catch { threw = 1; }
globalThis.__codemode_result__ = threw;
