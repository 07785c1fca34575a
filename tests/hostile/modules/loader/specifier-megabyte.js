//! {"codes": [], "result": true}
let said = 'imported';
try { await import('@codemode/servers/' + 'a'.repeat(1000000)); } catch (e) { said = e instanceof Error && e.message.length < 5000; }
globalThis.__codemode_result__ = said;
