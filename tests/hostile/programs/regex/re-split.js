//! {"ends": ["timeout"]}
return 'a'.repeat(40).split(/(a+)+b/).length
