//! {"ends": ["serialization"]}
const r = Proxy.revocable({}, {});
r.revoke();
return { a: r.proxy }
