//! {"ends": ["syntax"], "message": "line 2"}
let a = 1;
let b = ;
return 1
