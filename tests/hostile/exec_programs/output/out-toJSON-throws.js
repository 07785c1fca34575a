//! {"ends": ["returns"], "value": 2}
let threw = 0;
for (const bad of [{ toJSON() { throw new Error('x') } }, new Proxy({}, { ownKeys() { throw new Error('y') } })])
  try { json(bad) } catch { threw++ }
return threw
