//! {"ends": ["throws", "memory", "returns"]}
let it = [1].values();
for (let i = 0; i < 20000; i++) it = Iterator.zip([it]);
return typeof it.next()
