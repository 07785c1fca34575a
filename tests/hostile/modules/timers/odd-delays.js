//! {"codes": [], "result": 10}
const odd = [NaN, -1, Infinity, '7', {}, null, undefined, 1n, Symbol(), { valueOf() { throw 1; } }];
let threw = 0;
const ids = [];
for (const delay of odd) try { ids.push(setTimeout(() => {}, delay)); } catch { threw++; }
for (const id of ids) clearTimeout(id);
globalThis.__codemode_result__ = ids.length + threw;
