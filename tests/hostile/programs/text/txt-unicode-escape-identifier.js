//! {"ends": ["returns"], "value": 2}
let \u{61}b = 2;
return ab
