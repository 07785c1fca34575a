//! {"ends": ["returns"], "value": "function"}
return typeof await tools
