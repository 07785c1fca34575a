//! {"ends": ["deadlock", "returns"]}
async function* f() { try { yield 1 } finally { await null } }
const g = f();
const r = await Promise.allSettled([g.next(), g.return(2), g.throw(3), g.next()]);
return r.length
