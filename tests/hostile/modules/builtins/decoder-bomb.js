//! {"codes": ["SANDBOX_LIMIT"], "result": 2000000, "timeout_ms": 8000, "any": true}
globalThis.__codemode_result__ = new TextDecoder().decode(new Uint8Array(2000000)).length;
