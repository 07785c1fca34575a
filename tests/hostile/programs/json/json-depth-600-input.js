//! {"ends": ["serialization", "tool-error", "throws"]}
let a = 1;
for (let i = 0; i < 600; i++) a = [a];
return await tools.x(a)
