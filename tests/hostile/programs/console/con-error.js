//! {"ends": ["returns"]}
console.error(new TypeError('t'));
return 1
