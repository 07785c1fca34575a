//! {"codes": ["SANDBOX_LIMIT"], "result": 8000000, "timeout_ms": 8000, "any": true}
globalThis.__codemode_result__ = new TextDecoder().decode(new Uint8Array(8000000)).length;
