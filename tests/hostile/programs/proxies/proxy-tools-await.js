//! {"ends": ["returns"], "value": "function", "exec": {"value": "object"}}
return typeof await tools
