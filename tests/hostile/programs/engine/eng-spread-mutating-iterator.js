//! {"ends": ["returns"]}
const a = [1, 2, 3];
let n = 0;
const r = [...{ *[Symbol.iterator]() { while (n++ < 100) { a.length = 0; yield* a; a.push(n, n) } } }];
return r.length
