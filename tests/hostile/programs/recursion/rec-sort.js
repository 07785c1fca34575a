//! {"ends": ["throws", "memory"]}
const f = () => [2, 1].sort(f);
return f()
