//! {"ends": ["returns", "memory", "throws", "timeout"]}
const r = [];
for (const f of [() => 'a'.repeat(2 ** 30), () => 'a'.padEnd(2 ** 31), () => 'ab'.repeat(2 ** 52), () => Array(2 ** 32 - 1).join('x')]) try { f(); r.push('made') } catch (e) { r.push(e === null ? 'null' : e.name) }
return r.length
