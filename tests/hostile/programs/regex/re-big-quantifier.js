//! {"ends": ["returns", "throws", "syntax"]}
return /a{1,2147483647}/.test('a'.repeat(1000))
