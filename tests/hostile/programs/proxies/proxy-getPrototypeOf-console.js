//! {"ends": ["returns"], "value": 1}
console.log(new Proxy({}, { getPrototypeOf() { throw 1 } }));
return 1
