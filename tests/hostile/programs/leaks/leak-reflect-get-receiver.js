//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
const receiver = { set x(v) { throw 1 } };
return await Reflect.get(tools, 'x', receiver)(1)
