//! {"ends": ["throws"]}
throw tools
