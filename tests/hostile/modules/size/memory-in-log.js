//! {"codes": [], "result": 1, "timeout_ms": 8000}
const a = 'x'.repeat(1e6);
for (let i = 0; i < 2000; i++) console.log(a + i);
globalThis.__codemode_result__ = 1;
