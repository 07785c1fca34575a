//! {"codes": [], "result": "TypeError"}
const fake = Object.create(Uint8Array.prototype);
let said = 'read';
try { new TextDecoder().decode(fake); } catch (e) { said = e.name; }
globalThis.__codemode_result__ = said;
