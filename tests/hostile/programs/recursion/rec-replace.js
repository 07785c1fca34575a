//! {"ends": ["throws", "memory"]}
const f = () => 'a'.replace('a', f);
return f()
