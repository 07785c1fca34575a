//! {"ends": ["returns"]}
const m = new Map(Array.from({ length: 1000 }, (_, i) => [i, i]));
let n = 0;
m.forEach((v, k) => { m.delete(k); m.delete(k + 1); if (n++ < 2000) m.set('n' + n, n); if (n === 500) m.clear() });
return n > 0
