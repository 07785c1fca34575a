//! {"ends": ["serialization"]}
return tools
