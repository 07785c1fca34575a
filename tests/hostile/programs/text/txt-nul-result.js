//! {"ends": ["returns"], "value": "a\u0000b"}
return 'a\0b'
