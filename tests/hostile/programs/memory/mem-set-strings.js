//! {"ends": ["throws", "timeout", "memory"], "sample": "mem-set-strings"}
const m=new Set();for(let i=0;;i++)m.add('k'+i)
