//! {"ends": ["throws"]}
return delete tools.x
