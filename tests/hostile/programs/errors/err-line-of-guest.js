//! {"ends": ["throws"]}
const a = 1;
throw new Error('l')
