//! {"ends": ["returns"], "value": 2}
let threw = 0;
const loop = []; loop.push(loop);
for (const bad of [loop, Symbol('s')]) try { json(bad) } catch { threw++ }
return threw
