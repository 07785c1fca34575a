//! {"ends": ["timeout", "memory", "throws", "returns"]}
return 'a'.repeat(2 ** 24).split('').length
