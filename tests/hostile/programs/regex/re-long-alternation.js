//! {"ends": ["returns", "throws", "memory", "timeout"]}
return new RegExp('a|'.repeat(2e5)).test('z')
