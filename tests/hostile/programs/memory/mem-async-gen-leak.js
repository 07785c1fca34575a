//! {"ends": ["throws", "timeout", "memory"], "sample": "mem-async-gen-leak"}
const a=[];async function*g(){const b=new Array(100).fill(1);yield b;await new Promise(()=>{})}for(;;){const x=g();x.next();x.next();a.push(x)}
