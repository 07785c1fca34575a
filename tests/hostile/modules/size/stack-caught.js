//! {"codes": [], "result": 1}
const f = () => { try { return f() + 1; } catch { return 0; } };
f();
globalThis.__codemode_result__ = 1;
