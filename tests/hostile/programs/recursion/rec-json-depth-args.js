//! {"ends": ["throws", "serialization", "tool-error"], "sample": "rec-json-depth-args"}
let a=[];for(let i=0;i<1500;i++)a=[a];return await tools.x(a)
