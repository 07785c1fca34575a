//! {"codes": [], "result": true}
let said;
try { await import('@codemode/errors\0'); } catch (e) { said = e instanceof Error; }
globalThis.__codemode_result__ = said;
