//! {"codes": ["SANDBOX_LIMIT"], "timeout_ms": 400}
globalThis.__codemode_result__ = { toJSON() { for (;;) {} } };
