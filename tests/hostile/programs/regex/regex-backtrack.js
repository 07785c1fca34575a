//! {"ends": ["timeout"], "sample": "regex-backtrack"}
return /^(a+)+$/.test('a'.repeat(40)+'b')
