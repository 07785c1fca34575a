//! {"ends": ["returns"], "value": [["o"], [1], [2]], "calls": [["y", 1], ["y", 2], ["x", "o"]]}
const inner = [];
const outer = await tools.x({ toJSON() { inner.push(tools.y(1)); inner.push(tools.y(2)); return 'o' } });
return [outer, await inner[0], await inner[1]]
