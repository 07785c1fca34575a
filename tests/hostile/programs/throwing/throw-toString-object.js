//! {"ends": ["throws"]}
throw { toString() { return {} } }
