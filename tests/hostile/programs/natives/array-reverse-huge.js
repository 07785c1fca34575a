//! {"ends": ["timeout", "memory", "throws", "returns"]}
return Array.prototype.reverse.call({ length: 2 ** 53 - 1 }).length
