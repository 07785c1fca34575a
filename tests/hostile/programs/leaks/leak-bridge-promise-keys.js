//! {"ends": ["returns"], "calls": [["x", 1]]}
const call = tools.x(1);
const d = Object.getOwnPropertyDescriptors(call);
const v = await call;
return [Reflect.ownKeys(d), d.then.writable, Reflect.ownKeys(d.constructor.value).length, v]
