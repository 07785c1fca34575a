//! {"codes": [], "result": [true, true]}
let n = 0;
const odd = { toString() { return n++ ? '@codemode/errors' : '@codemode/discovery'; } };
const first = await import(odd), second = await import(odd);
globalThis.__codemode_result__ = ['listServers' in first, 'ToolCallError' in second];
