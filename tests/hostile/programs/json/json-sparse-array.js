//! {"ends": ["returns"], "value": [null, null, null, 1]}
const a = [];
a[3] = 1;
return a
