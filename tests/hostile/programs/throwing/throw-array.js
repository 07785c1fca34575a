//! {"ends": ["throws"]}
throw [1, [2]]
