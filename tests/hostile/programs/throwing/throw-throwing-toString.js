//! {"ends": ["throws"]}
throw { toString() { throw 1 } }
