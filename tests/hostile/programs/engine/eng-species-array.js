//! {"ends": ["returns"]}
class A extends Array { static get [Symbol.species]() { return function (n) { return new Proxy([], { defineProperty: () => true, set: () => true }) } } }
const a = A.from([1, 2, 3]);
try { a.map(x => x); a.filter(x => x); a.splice(0, 2); a.concat([1]); a.flat() } catch {}
return a.length
