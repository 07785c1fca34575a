//! {"ends": ["returns"], "value": 1}
globalThis.pwn = 1;
var pwn2 = 2;
return globalThis.pwn
