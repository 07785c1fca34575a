//! {"ends": ["detached", "returns"], "calls": [["x", 1]]}
const a = tools.x(1);
let v;
await new Promise(r => Promise.prototype.then.call(a, w => { v = w; r() }));
return v
