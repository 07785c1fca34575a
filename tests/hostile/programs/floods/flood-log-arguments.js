//! {"ends": ["returns"], "value": 1}
console.log(...Array(6e4).fill('a'));
return 1
