//! {"ends": ["throws"]}
throw Promise.reject(1)
