//! {"codes": [], "result": 1}
let id;
await new Promise((r) => { id = setTimeout(() => { clearTimeout(id); r(); }, 1); });
globalThis.__codemode_result__ = 1;
