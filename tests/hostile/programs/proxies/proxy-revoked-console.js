//! {"ends": ["returns"], "value": 1}
const r = Proxy.revocable({}, {});
r.revoke();
console.log(r.proxy);
return 1
