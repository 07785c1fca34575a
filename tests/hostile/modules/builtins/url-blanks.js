//! {"codes": [], "result": false}
globalThis.__codemode_result__ = URL.canParse(' '.repeat(2000000) + 'x');
