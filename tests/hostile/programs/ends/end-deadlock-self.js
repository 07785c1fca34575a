//! {"ends": ["deadlock"]}
const a = new Promise(r => r(Promise.resolve().then(() => a)));
return await new Promise(() => {})
