//! {"ends": ["returns"], "value": 1}
let a = 1;
--> return 2
return a
