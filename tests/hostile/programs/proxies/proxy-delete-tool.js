//! {"ends": ["throws"], "exec": {"ends": ["returns"]}}
return delete tools.x
