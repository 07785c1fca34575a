//! {"codes": ["SANDBOX_LIMIT"], "result": true, "any": true, "timeout_ms": 8000}
let n = 0;
for (let i = 0; i < 2; i++) n += new URL('http://a/' + '../b/'.repeat(100000)).href.length;
globalThis.__codemode_result__ = n > 0;
