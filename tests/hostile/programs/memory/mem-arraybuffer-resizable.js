//! {"ends": ["throws", "timeout", "memory"], "sample": "mem-arraybuffer-resizable"}
const b=new ArrayBuffer(8,{maxByteLength:2**40});b.resize(2**39)
