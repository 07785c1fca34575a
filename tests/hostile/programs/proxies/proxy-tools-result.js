//! {"ends": ["serialization"], "exec": {"ends": ["returns"]}}
return tools
