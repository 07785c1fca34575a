//! {"ends": ["throws", "memory", "returns"]}
let it = [1].values();
for (let i = 0; i < 20000; i++) { const q = it; it = new (class extends Iterator { next() { return q.next() } })().map(x => x) };
return typeof it.next()
