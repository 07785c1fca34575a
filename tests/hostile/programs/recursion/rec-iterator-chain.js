//! {"ends": ["throws", "memory"], "sample": "rec-iterator-chain"}
let it=[1].values();for(let i=0;i<1e5;i++)it=it.map(x=>x);return [...it]
