//! {"ends": ["returns"]}
const r = [];
for (const x of [1e308, 5e-324, -0, NaN, 2 ** 1023]) for (let k = 2; k <= 36; k += 17) r.push(x.toString(k).length);
try { (1).toFixed(101) } catch { r.push(0) }
return r.length
