//! {"ends": ["throws"], "error_name": "TypeError"}
const r = Proxy.revocable({}, {});
r.revoke();
return await tools.x(r.proxy)
