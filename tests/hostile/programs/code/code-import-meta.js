//! {"ends": ["syntax"]}
return import.meta.url
