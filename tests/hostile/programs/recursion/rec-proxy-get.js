//! {"ends": ["throws", "memory"]}
const q = new Proxy({}, { get: (t, k, r) => r[k] });
return q.a
