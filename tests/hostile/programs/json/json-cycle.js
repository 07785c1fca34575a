//! {"ends": ["serialization"]}
const a = [];
a[0] = a;
return a
