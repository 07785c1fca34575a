//! {"ends": ["throws", "timeout", "memory"], "sample": "mem-symbols"}
const o={};for(let i=0;;i++)o[Symbol('s'+i)]=i
