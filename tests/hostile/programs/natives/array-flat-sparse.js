//! {"ends": ["timeout", "memory", "throws", "returns"]}
const a = [];
a.length = 2 ** 32 - 1;
return a.flat().length
