//! {"ends": ["returns"], "console": ["%s %d %o a 1"]}
console.log('%s %d %o', 'a', 1);
return 1
