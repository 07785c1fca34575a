//! {"ends": ["timeout", "memory", "throws", "returns"]}
return ((1n << 1000000n) - 1n).toString(7).length
