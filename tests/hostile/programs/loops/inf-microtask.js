//! {"ends": ["timeout", "deadlock", "memory"], "sample": "inf-microtask"}
const f=()=>Promise.resolve().then(f);f();await new Promise(()=>{})
