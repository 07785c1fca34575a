//! {"ends": ["timeout", "returns"]}
return /^(a+)\1*\1*\1*\1*\1*b$/.test('a'.repeat(300))
