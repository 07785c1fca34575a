//! {"ends": ["returns"], "console": ["a b"]}
console.log.apply(null, ['a', 'b']);
return 1
