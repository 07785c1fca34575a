//! {"ends": ["timeout", "returns"]}
return /^((a*)*)*$/.test('a'.repeat(30) + 'b')
