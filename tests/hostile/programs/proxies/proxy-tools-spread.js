//! {"ends": ["returns"], "value": 7, "exec": {"value": 10}}
return Object.keys({ ...tools, ...tools.x }).length
