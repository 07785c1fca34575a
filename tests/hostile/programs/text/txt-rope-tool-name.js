//! {"ends": ["tool-error"]}
let s = 'x'.repeat(100);
return await tools[s + s.slice(1)](1)
