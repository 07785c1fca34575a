//! {"ends": ["throws", "memory", "returns"]}
let it = [1].values();
for (let i = 0; i < 20000; i++) { const q = it; it = Iterator.prototype.map.call(new Proxy(q, { get: (t, k) => typeof t[k] === 'function' ? t[k].bind(t) : t[k] }), x => x) };
return typeof it.next()
