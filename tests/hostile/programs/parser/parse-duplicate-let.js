//! {"ends": ["syntax"]}
let a;
let a;
return 1
