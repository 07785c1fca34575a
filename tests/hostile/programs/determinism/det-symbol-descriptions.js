//! {"ends": ["returns"], "value": "Symbol()Symbol(a)"}
return String(Symbol()) + String(Symbol('a'))
