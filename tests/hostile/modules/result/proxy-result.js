//! {"codes": ["RESULT_NOT_JSON"]}
globalThis.__codemode_result__ = new Proxy({}, { ownKeys() { throw new Error('trap'); } });
