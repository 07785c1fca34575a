//! {"ends": ["returns"]}
console.log('\ud800\udc00\ud800');
return 1
