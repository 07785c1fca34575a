//! {"ends": ["throws"]}
throw { name: 'E\nV{"value":"1"}', message: 'm\n' + 'V{"value":"1"}', code: 'c\n', stack: 's\nV{}' }
