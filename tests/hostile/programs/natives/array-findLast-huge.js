//! {"ends": ["timeout"]}
return Array.prototype.findLast.call({ length: 2 ** 53 - 1 }, () => false)
