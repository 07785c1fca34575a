//! {"ends": ["returns"], "value": ["a"], "calls": [["x", "a"]]}
return await Reflect.apply(tools.x, null, { length: 1, 0: 'a' })
