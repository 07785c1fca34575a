//! {"ends": ["serialization", "memory", "timeout"]}
const a = [];
a[2 ** 32 - 2] = 1;
return a
