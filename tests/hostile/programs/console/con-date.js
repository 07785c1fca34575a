//! {"ends": ["returns"]}
console.log(new Date(0), new Date(NaN));
return 1
