//! {"ends": ["returns"], "value": 0}
return Object.keys({ ...tools, ...tools.x }).length
