//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
const { promise, resolve } = Promise.withResolvers();
resolve(tools.x(1));
return await promise
