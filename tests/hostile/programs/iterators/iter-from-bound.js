//! {"ends": ["throws", "memory", "returns"]}
let it = [1].values();
for (let i = 0; i < 20000; i++) it = Iterator.from({ __proto__: null, next: it.next.bind(it) });
return typeof it.next()
