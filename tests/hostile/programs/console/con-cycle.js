//! {"ends": ["returns"]}
const a = [];
a.push(a);
console.log(a);
return 1
