//! {"ends": ["timeout", "memory", "throws", "returns"]}
return new Array(2 ** 32 - 1).fill(0).length
