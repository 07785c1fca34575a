//! {"ends": ["throws", "timeout", "memory"], "sample": "mem-template"}
let s='x'.repeat(1e6);for(;;)s=`${s}${s}`
