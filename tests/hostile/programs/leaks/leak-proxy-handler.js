//! {"ends": ["returns"], "value": [[1], ["function", true]], "calls": [["x", 1]], "exec": {"value": [[1], ["object", true]]}}
let seen = [];
const spy = new Proxy(tools, { get(t, k, r) { seen.push(typeof t, r === spy); return Reflect.get(t, k, r) } });
const v = await spy.x(1);
return [v, seen]
