//! {"ends": ["throws", "timeout", "memory"], "sample": "mem-json-stringify"}
const a=Array(1e5).fill('x'.repeat(1000));return JSON.stringify(a).length
