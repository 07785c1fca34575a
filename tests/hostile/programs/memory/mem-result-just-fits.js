//! {"ends": ["serialization", "memory"]}
return 'x'.repeat(20e6)
