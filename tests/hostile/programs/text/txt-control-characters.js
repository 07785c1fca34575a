//! {"ends": ["returns"], "value": "\u0001\u001f\u007f\u0080"}
return '\u0001\u001f\u007f\u0080'
