//! {"ends": ["returns"], "value": ["object", "", ["toJSON"]], "calls": [["x", 1]]}
let seen;
const v = { toJSON(k) { seen = [typeof this, k, Reflect.ownKeys(this)]; return 1 } };
await tools.x(v);
return seen
