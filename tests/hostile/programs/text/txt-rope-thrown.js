//! {"ends": ["throws"]}
let s = 'x'.repeat(9000);
throw s + s
