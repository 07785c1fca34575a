//! {"ends": ["returns"], "value": [["other"], [1]], "calls": [["x", 1]]}
const a = tools.x(1);
const steal = a.then;
return await steal.call(Promise.resolve('other'), v => [v]).then(async v => [v, await a])
