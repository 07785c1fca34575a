//! {"ends": ["timeout", "memory", "throws", "returns"]}
return Array.prototype.unshift.call({ length: 2 ** 40, 0: 1 }, 1)
