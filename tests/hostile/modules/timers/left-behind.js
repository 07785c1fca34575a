//! {"codes": [], "result": "early"}
setTimeout(() => { globalThis.__codemode_result__ = 'late'; }, 50);
globalThis.__codemode_result__ = 'early';
