//! {"ends": ["returns"], "value": [2, true, true]}
const seen = new Set();
for (let o = new Date(); o; o = Object.getPrototypeOf(o)) { seen.add(o.constructor) }
return [[...seen].length, new Date().constructor === Date, Date.prototype.constructor === Date]
