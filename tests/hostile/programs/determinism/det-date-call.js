//! {"ends": ["returns"], "value": true}
const a = Date(), b = Date();
return a === b || a < b
