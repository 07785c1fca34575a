//! {"codes": [], "result": "mine"}
let said;
try { await import({ toString() { throw new RangeError('mine'); } }); } catch (e) { said = e.message; }
globalThis.__codemode_result__ = said;
