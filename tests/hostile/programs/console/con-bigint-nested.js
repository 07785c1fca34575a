//! {"ends": ["returns"]}
console.log([5n]);
return 1
