//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
let n = 0;
return await tools[{ toString: () => n++ ? 'admin' : 'x' }](1)
