//! {"codes": [], "result": "string"}
const b = new ArrayBuffer(8);
const v = new Uint8Array(b);
b.transfer?.();
let said;
try { said = typeof new TextDecoder().decode(v); } catch (e) { said = 'string'; }
globalThis.__codemode_result__ = said;
