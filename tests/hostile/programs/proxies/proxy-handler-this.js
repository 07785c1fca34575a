//! {"ends": ["returns"], "value": true}
const h = { get(t, k) { return this === h } };
return new Proxy({}, h).a
