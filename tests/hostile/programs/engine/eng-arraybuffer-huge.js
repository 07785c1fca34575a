//! {"ends": ["returns", "memory", "throws"]}
const r = [];
for (const n of [2 ** 31, 2 ** 32, 2 ** 53 - 1, -1, 1e20]) try { new ArrayBuffer(n); r.push('made') } catch (e) { r.push(e.name) }
return r.length
