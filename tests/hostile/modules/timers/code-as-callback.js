//! {"codes": [], "result": ["TypeError", "undefined"]}
let said = 'set';
try { setTimeout('globalThis.pwn = 1', 0); } catch (e) { said = e.name; }
await new Promise((r) => setTimeout(r, 5));
globalThis.__codemode_result__ = [said, typeof pwn];
