//! {"ends": ["returns"], "value": [[1]], "calls": [["x", [1]]]}
return await tools.x(new Proxy([1, 2], { get: (t, k) => k === 'length' ? 1 : t[k] }))
