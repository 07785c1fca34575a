//! {"ends": ["timeout", "memory", "throws", "returns"]}
return Math.max.apply(null, { length: 2 ** 31 })
