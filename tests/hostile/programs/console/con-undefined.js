//! {"ends": ["returns"]}
console.log(undefined, null, () => 1);
return 1
