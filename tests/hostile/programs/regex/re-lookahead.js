//! {"ends": ["timeout"]}
return /^(?=(a+)+$)b/.test('a'.repeat(40) + 'b')
