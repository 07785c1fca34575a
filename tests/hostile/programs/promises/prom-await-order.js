//! {"ends": ["returns"], "value": 3, "calls": [["x", 3], ["x", 1], ["x", 2]]}
const order = [];
await Promise.all([3, 1, 2].map(async n => { await tools.x(n); order.push(n) }));
return order.length
