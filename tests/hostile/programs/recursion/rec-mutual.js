//! {"ends": ["throws", "memory"]}
const a = () => b(), b = () => a();
return a()
