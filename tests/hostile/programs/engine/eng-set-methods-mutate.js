//! {"ends": ["returns", "memory", "throws"]}
const s = new Set([1, 2, 3, 4]);
const evil = { size: 4, has() { s.clear(); return true }, keys() { let i = 0; return { next() { s.clear(); s.add(i); return { done: i++ > 10, value: i } } } } };
for (const m of ['union', 'intersection', 'difference', 'symmetricDifference', 'isSubsetOf', 'isSupersetOf', 'isDisjointFrom']) try { s.add(1).add(2); s[m](evil) } catch {}
return 1
