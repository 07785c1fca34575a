//! {"ends": ["returns"]}
console.log('a'.repeat(5e6), 'b');
return 1
