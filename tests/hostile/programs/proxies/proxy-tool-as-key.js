//! {"ends": ["returns"], "value": "string"}
return typeof String(tools.x)
