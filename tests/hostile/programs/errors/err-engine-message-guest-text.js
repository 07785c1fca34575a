//! {"ends": ["throws"], "error_name": "TypeError"}
null['x'.repeat(1e5)]
