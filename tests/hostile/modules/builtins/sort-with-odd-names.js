//! {"codes": [], "result": "312"}
const s = new URLSearchParams([['\ud83d\ude00', '1'], ['\uffff', '2'], ['a', '3']]);
s.sort();
globalThis.__codemode_result__ = [...s.values()].join('');
