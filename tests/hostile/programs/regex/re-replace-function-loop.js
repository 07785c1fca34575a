//! {"ends": ["timeout", "returns"]}
return 'a'.repeat(1e4).replace(/(a+)+b|a/g, () => 'x').length
