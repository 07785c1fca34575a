//! {"ends": ["returns"], "calls": [["x", 1], ["y", 1]]}
const a = tools.x(1), b = tools.y(1);
const same = a.then === b.then;
await a;
await b;
return [same, Object.isFrozen(a.then), Reflect.ownKeys(a.then)]
