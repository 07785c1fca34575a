//! {"ends": ["returns"], "value": [[1], "RangeError"], "calls": [["x", 1]]}
const refused = await (async () => tools.x({ a: 10n ** 5000n }))().catch((error) => error.name)
return [await tools.x(1n), refused]
