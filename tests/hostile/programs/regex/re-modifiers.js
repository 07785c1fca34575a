//! {"ends": ["returns", "syntax"]}
return /(?i:A)b/.test('ab')
