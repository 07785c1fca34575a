//! {"ends": ["serialization"]}
let a = 1;
for (let i = 0; i < 600; i++) a = [a];
return a
