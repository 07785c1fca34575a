//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
return await new Proxy(tools.x, { apply: (t, s, a) => t(...a, 2) })(1)
