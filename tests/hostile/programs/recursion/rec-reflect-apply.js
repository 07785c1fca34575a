//! {"ends": ["throws", "memory"]}
const f = () => Reflect.apply(f, null, []);
return f()
