//! {"ends": ["serialization"], "sample": "safe-stringify-mutate"}
const a=[1,2,3];return JSON.stringify(a,(k,v)=>{a.length=0;a[1e6]=1;return v})
