//! {"ends": ["throws", "memory", "returns"]}
let it = [1].values();
for (let i = 0; i < 20000; i++) it = Iterator.prototype.map.call({ __proto__: null, next: it.next.bind(it) }, x => x);
return typeof it.next()
