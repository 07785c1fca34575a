//! {"ends": ["throws"]}
throw undefined
