//! {"codes": ["RESULT_NOT_JSON", "SANDBOX_LIMIT", "RESULT_TOO_LARGE"]}
let a = []; for (let i = 0; i < 100000; i++) a = [a];
globalThis.__codemode_result__ = a;
