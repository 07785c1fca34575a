//! {"ends": ["throws", "timeout", "memory"], "sample": "mem-proxy-chain"}
let p={};for(;;)p=new Proxy(p,{})
