//! {"ends": ["returns"], "value": 4}
return '\uffff\ufffe\u{10ffff}'.length
