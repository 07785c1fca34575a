//! {"ends": ["throws"]}
throw Object.create(null)
