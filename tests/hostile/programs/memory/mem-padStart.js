//! {"ends": ["throws", "memory"], "sample": "mem-padStart"}
return 'x'.padStart(2**30-2,'yy').length
