//! {"ends": ["throws", "returns", "timeout", "memory"], "sample": "rec-proxy-chain-get"}
let p={};for(let i=0;i<200000;i++)p=new Proxy(p,{});return p.x
