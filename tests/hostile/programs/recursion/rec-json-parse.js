//! {"ends": ["throws", "memory"], "sample": "rec-json-parse"}
return JSON.parse('['.repeat(1e6)+']'.repeat(1e6))
