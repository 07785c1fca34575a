//! {"ends": ["throws", "memory"], "sample": "throw-null"}
throw null
