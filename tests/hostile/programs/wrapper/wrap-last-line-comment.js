//! {"ends": ["returns"], "value": 1}
return 1 // }) tools.admin(1)
