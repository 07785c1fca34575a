//! {"ends": ["timeout", "throws", "memory"], "sample": "mem-log-flood", "exec": {"ends": ["serialization"]}}
for(;;)console.log('x'.repeat(8000))
