//! {"ends": ["serialization"]}
return Symbol('x')
