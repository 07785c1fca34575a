//! {"ends": ["returns", "syntax"]}
return /^[\p{L}--[a-z]]+$/v.test('A'.repeat(1e5))
