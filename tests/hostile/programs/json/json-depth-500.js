//! {"ends": ["returns"]}
let a = 1;
for (let i = 0; i < 500; i++) a = [a];
return a
