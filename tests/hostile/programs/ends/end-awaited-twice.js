//! {"ends": ["returns"], "value": [[1], [1], [1]], "calls": [["x", 1]]}
const a = tools.x(1);
return [await a, await a, await a.then(v => v)]
