//! {"ends": ["returns"], "value": 1}
class D extends Date {}
const a = Date.now();
return +new D() - a
