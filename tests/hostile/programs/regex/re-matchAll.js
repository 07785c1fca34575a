//! {"ends": ["timeout", "returns"]}
return [...'a'.repeat(30).matchAll(/(a+)+b|(?:)/g)].length
