//! {"ends": ["throws", "timeout", "memory"], "sample": "mem-array-nest"}
let a=[];for(;;)a=[a]
