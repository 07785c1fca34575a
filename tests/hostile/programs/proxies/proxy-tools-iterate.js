//! {"ends": ["throws"]}
return [...tools]
