//! {"ends": ["throws", "memory"], "sample": "rec-regex-class-v"}
return new RegExp('['.repeat(1e5)+']'.repeat(1e5),'v').test('')
