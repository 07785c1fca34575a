//! {"ends": ["deadlock"], "sample": "stuck-never"}
await new Promise(()=>{})
