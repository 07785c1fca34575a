//! {"ends": ["memory", "timeout", "deadlock", "throws"]}
let x = 2n;
for (;;) x *= x
