//! {"ends": ["throws", "timeout", "memory"], "sample": "mem-string-double"}
let s='x';for(;;)s+=s
