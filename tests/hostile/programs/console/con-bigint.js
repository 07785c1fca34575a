//! {"ends": ["returns"], "console": ["5 [1] {\"a\":1}"]}
console.log(5n, [1], { a: 1 });
return 1
