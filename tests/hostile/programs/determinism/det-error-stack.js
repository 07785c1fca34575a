//! {"ends": ["returns"], "value": false}
return /0x[0-9a-f]|\.py|\/|[a-z]:\\/.test(new Error('x').stack)
