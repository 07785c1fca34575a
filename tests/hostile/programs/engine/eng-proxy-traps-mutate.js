//! {"ends": ["returns"]}
const t = { a: 1 };
const q = new Proxy(t, { ownKeys() { delete t.a; t.b = 2; return ['b', 'c'] }, getOwnPropertyDescriptor(t, k) { t[k] = 1; return Reflect.getOwnPropertyDescriptor(t, k) } });
return Object.entries(q).length
