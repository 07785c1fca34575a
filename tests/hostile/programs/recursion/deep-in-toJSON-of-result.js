//! {"ends": ["serialization", "returns", "throws"]}
function f() { return f() }
return { toJSON() { return f() } }
