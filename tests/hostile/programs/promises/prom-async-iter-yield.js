//! {"ends": ["returns"], "value": [[1], [2]], "calls": [["x", 1], ["y", 2]]}
async function* g() { yield tools.x(1); return tools.y(2) }
const r = [];
const it = g();
r.push((await it.next()).value, (await it.next()).value);
return r
