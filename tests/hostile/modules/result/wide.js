//! {"codes": ["RESULT_TOO_LARGE"]}
globalThis.__codemode_result__ = Array.from({ length: 400000 }, () => 0);
