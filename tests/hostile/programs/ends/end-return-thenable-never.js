//! {"ends": ["deadlock"]}
return { then() {} }
