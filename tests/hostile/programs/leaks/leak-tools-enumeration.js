//! {"ends": ["returns"], "value": [[], [], false, "{}", []]}
return [Object.keys(tools), Reflect.ownKeys(tools), 'x' in tools, JSON.stringify({ t: tools }), Object.entries({ ...tools })]
