//! {"ends": ["throws", "memory"]}
return { toJSON() { throw null } }
