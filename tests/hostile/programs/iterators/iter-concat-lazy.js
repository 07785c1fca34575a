//! {"ends": ["throws", "memory", "returns"]}
let it = [1].values();
for (let i = 0; i < 20000; i++) { const q = it; it = Iterator.concat({ [Symbol.iterator]: () => q }) };
return typeof it.next()
