//! {"ends": ["serialization", "memory"]}
return '\"'.repeat(1e6)
