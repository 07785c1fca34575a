//! {"ends": ["returns"], "value": 2}
return '😀'.length
