//! {"codes": [], "result": "TypeError"}
let said;
try { await import(Symbol()); } catch (e) { said = e.name; }
globalThis.__codemode_result__ = said;
