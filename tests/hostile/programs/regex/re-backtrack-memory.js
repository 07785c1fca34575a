//! {"ends": ["timeout", "returns", "throws", "memory"]}
return /(?:a|b)*?c/.test('ab'.repeat(1e6))
