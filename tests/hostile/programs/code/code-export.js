//! {"ends": ["syntax"]}
export const a = 1;
return a
