//! {"ends": ["returns", "throws", "memory"]}
let q = {};
for (let i = 0; i < 1e5; i++) q = new Proxy(q, {});
return Object.getPrototypeOf(q) === Object.prototype
