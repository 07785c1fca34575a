//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
return await new Proxy(tools, {}).x(1)
