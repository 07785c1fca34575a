//! {"codes": [], "result": false}
globalThis.__codemode_result__ = URL.canParse('http://' + 'xn--' + 'z'.repeat(500000));
