//! {"ends": ["throws", "memory"], "sample": "rec-iterator-destruct"}
let it=[1].values();for(let i=0;i<5e4;i++)it=it.map(x=>x);const [a]=it;return a
