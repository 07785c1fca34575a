//! {"ends": ["returns"], "value": 0, "exec": {"value": 10}}
return Object.keys({ ...tools, ...tools.x }).length
