//! {"ends": ["returns"], "value": [[3], [2], [1]], "calls": [["x", 1], ["y", 2], ["x", 3]]}
const a = tools.x(1), b = tools.y(2), c = tools.x(3);
return [await c, await b, await a]
