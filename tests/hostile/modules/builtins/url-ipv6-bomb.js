//! {"codes": [], "result": false}
globalThis.__codemode_result__ = URL.canParse('http://[' + '1:'.repeat(500000) + ']');
