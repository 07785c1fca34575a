//! {"codes": [], "result": "global"}
var __codemode_result__ = 'local';
globalThis.__codemode_result__ = 'global';
