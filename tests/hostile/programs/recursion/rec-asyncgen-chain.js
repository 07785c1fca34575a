//! {"ends": ["throws", "memory"]}
async function* g(q) { if (q) yield* q; else yield 1 }
let a = null;
for (let i = 0; i < 1e5; i++) a = g(a);
return (await a.next()).value
