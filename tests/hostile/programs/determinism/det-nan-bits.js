//! {"ends": ["returns"], "value": true}
const f = new Float64Array([NaN, 0 / 0, -NaN]);
return [...new BigUint64Array(f.buffer)].map(String).every(s => s.length > 0)
