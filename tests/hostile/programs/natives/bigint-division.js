//! {"ends": ["timeout"]}
let x = (1n << 1000000n) - 1n;
for (;;) x / 3n
