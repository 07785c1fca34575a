//! {"ends": ["returns"]}
console.log('a'.repeat(9000));
return 1
