//! {"ends": ["tool-error"], "exec": {"ends": ["throws"]}}
let s = 'x'.repeat(100);
return await tools[s + s.slice(1)](1)
