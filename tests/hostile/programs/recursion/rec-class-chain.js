//! {"ends": ["throws", "memory"]}
let C = class {};
for (let i = 0; i < 1e5; i++) C = class extends C {};
return typeof new C()
