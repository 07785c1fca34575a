//! {"ends": ["returns"], "value": [[1], [2]], "calls": [["x", 1], ["y", 2]]}
const r = [];
for await (const v of [tools.x(1), tools.y(2)]) r.push(v);
return r
