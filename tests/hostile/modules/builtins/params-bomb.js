//! {"codes": [], "result": 100000, "timeout_ms": 8000}
const s = new URLSearchParams('a=1&'.repeat(100000));
globalThis.__codemode_result__ = s.size;
