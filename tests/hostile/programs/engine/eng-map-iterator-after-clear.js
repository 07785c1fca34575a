//! {"ends": ["returns"]}
const m = new Map([[1, 1], [2, 2]]);
const it = m.entries();
it.next();
m.clear();
for (let i = 0; i < 100; i++) m.set(i, i);
return [...it].length
