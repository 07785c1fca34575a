//! {"ends": ["throws", "memory", "returns"]}
let it = [1].values();
for (let i = 0; i < 20000; i++) it = Object.create(it.map(x => x));
return typeof it.next()
