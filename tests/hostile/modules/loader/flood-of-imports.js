//! {"codes": [], "result": 3000, "timeout_ms": 8000}
let refused = 0;
for (let i = 0; i < 3000; i++) try { await import('@codemode/servers/s' + i); } catch (e) { refused++; }
globalThis.__codemode_result__ = refused;
