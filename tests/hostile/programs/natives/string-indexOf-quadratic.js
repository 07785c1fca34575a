//! {"ends": ["timeout"]}
const s = 'a'.repeat(1e6);
let n = 0;
for (;;) n += (s + 'b').indexOf('a'.repeat(5e5) + 'c')
