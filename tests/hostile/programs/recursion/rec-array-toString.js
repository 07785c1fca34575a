//! {"ends": ["throws", "memory"]}
let a = [];
for (let i = 0; i < 1e5; i++) a = [a];
return String(a).length
