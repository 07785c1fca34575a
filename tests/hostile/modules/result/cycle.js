//! {"codes": ["RESULT_NOT_JSON"]}
const a = []; a.push(a);
globalThis.__codemode_result__ = a;
