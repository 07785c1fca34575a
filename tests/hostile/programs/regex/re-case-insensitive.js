//! {"ends": ["timeout", "returns"]}
return /^(\u212a|k)+$/iu.test('k'.repeat(30) + '!')
