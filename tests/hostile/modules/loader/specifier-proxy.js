//! {"codes": [], "result": "trap"}
let said;
try { await import(new Proxy({}, { get() { throw new Error('trap'); } })); } catch (e) { said = e.message; }
globalThis.__codemode_result__ = said;
