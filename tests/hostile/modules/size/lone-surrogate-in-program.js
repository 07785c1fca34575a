//! {"codes": [], "result": 1}
globalThis.__codemode_result__ = '\ud800'.length;
