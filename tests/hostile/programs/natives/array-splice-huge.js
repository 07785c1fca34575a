//! {"ends": ["timeout", "memory", "throws", "returns"]}
return Array.prototype.splice.call({ length: 2 ** 53 - 1 }, 0, 1).length
