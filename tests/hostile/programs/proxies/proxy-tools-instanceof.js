//! {"ends": ["throws"]}
return {} instanceof tools.x
