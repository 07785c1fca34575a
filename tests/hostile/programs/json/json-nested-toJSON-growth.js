//! {"ends": ["serialization", "throws", "memory", "timeout"]}
const f = () => ({ toJSON: () => ({ a: f(), b: f() }) });
return f()
