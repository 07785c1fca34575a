//! {"codes": [], "result": true}
const start = Date.now();
await new Promise((r) => setTimeout(r, 30));
globalThis.__codemode_result__ = Date.now() - start >= 30;
