//! {"ends": ["throws"]}
throw function f() {}
