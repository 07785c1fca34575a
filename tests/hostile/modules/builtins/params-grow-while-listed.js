//! {"codes": [], "result": true}
const s = new URLSearchParams('a=1');
let n = 0;
for (const _ of s) { if (n++ > 5000) break; s.append('a', '1'); }
globalThis.__codemode_result__ = n > 5000;
