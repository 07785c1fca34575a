//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
return await new Promise(r => r(new Promise(s => s(tools.x(1)))))
