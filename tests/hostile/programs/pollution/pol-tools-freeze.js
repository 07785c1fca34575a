//! {"ends": ["returns"], "value": [[1], [2]], "calls": [["x", 1], ["y", 2]]}
for (const attack of [
  () => { Object.freeze(tools) },
  () => { Object.freeze(tools.x) },
  () => { Object.preventExtensions(tools.y) },
  () => { Object.seal(tools) }
]) { try { attack() } catch {} }
return [await tools.x(1), await tools.y(2)]
