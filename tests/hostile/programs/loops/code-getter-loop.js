//! {"ends": ["timeout"]}
throw { get code() { for (;;); } }
