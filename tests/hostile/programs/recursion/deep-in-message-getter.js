//! {"ends": ["throws"], "error_name": "N"}
function f() { return f() + 1 }
throw { name: 'N', get message() { return f() } }
