//! {"ends": ["returns"], "value": 1}
let n = 0;
const f = () => { n++; if (n < 1000) queueMicrotask(f) };
f();
return n
