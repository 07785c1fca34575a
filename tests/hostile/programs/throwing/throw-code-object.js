//! {"ends": ["throws"]}
throw { message: 'm', code: { toString() { throw 1 } } }
