//! {"ends": ["timeout", "returns"], "sample": "regex-lookbehind"}
return /(?<=(a+)+)c/.test('a'.repeat(40)+'b')
