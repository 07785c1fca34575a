//! {"ends": ["returns"], "console": ["ok"]}
console.table?.([1]);
console.log('ok');
return 1
