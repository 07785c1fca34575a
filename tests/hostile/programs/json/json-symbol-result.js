//! {"ends": ["serialization"], "exec": {"ends": ["returns"]}}
return Symbol('x')
