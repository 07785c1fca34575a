//! {"ends": ["throws", "memory"], "sample": "rec-fn"}
function f(){return f()+1}return f()
