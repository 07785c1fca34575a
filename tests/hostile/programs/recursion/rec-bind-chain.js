//! {"ends": ["throws", "returns", "memory"], "sample": "rec-bind-chain"}
let f=()=>1;for(let i=0;i<1e5;i++)f=f.bind();return f()
