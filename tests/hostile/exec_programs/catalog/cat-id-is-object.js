//! {"ends": ["returns"], "value": 3}
let refused = 0;
const sly = { n: 0, toString() { return this.n++ ? 'host:core:admin' : 'host:core:x' } };
for (const id of [sly, new Proxy({}, {}), ['host:core:admin', 1]])
  try { await tools.call(id, 1) } catch { refused++ }
return refused
