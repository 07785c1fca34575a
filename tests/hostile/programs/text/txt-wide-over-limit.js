//! {"ends": ["serialization"]}
return '\u4e00'.repeat(400000)
