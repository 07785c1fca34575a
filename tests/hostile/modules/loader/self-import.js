//! {"codes": [], "result": true}
let said;
try { said = await import('<input>'); } catch (e) { said = e instanceof Error; }
globalThis.__codemode_result__ = said;
