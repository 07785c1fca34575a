//! {"ends": ["returns"], "value": 1}
console.log('\ud83d');
return 1
