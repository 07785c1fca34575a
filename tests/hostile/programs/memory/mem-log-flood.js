//! {"ends": ["timeout", "throws", "memory"], "sample": "mem-log-flood"}
for(;;)console.log('x'.repeat(8000))
