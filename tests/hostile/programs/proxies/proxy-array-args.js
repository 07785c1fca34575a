//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
return await Reflect.apply(tools.x, null, new Proxy([1], {}))
