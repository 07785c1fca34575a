//! {"ends": ["returns"]}
with (tools) { return typeof x }
