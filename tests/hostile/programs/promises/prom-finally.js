//! {"ends": ["returns"], "value": [[1], 1], "calls": [["x", 1]]}
let n = 0;
return [await tools.x(1).finally(() => n++), n]
