//! {"ends": ["returns"], "value": 500000}
return '\\'.repeat(500000).length
