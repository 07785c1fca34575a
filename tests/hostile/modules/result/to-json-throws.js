//! {"codes": ["RESULT_NOT_JSON"]}
globalThis.__codemode_result__ = { toJSON() { throw new Error('no'); } };
