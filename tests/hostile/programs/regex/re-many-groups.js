//! {"ends": ["throws"]}
return new RegExp('(a)'.repeat(300)).test('')
