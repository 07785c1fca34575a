//! {"codes": [], "result": [1000, "SandboxLimitError"]}
let set = 0, said;
try { for (;;) { setTimeout(() => {}, 1e6); set++; } } catch (e) { said = e.name; }
globalThis.__codemode_result__ = [set, said];
