//! {"ends": ["returns"]}
console.log(Symbol('x'));
return 1
