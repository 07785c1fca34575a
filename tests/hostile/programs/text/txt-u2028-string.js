//! {"ends": ["returns"], "value": 3}
return 'a b'.length
