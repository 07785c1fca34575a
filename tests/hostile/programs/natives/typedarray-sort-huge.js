//! {"ends": ["timeout"]}
const a = new Float64Array(4e6);
for (let i = 0; i < a.length; i++) a[i] = -i;
for (;;) a.sort()
