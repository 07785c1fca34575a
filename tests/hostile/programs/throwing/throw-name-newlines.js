//! {"ends": ["throws"]}
throw { name: 'a\n\r\u2028\u0000b', message: '\ud800\u0000' }
