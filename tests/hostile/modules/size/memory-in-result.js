//! {"codes": ["RESULT_TOO_LARGE", "SANDBOX_LIMIT"]}
const a = 'x'.repeat(1e6);
globalThis.__codemode_result__ = Array.from({ length: 64 }, (_, i) => a + i);
