//! {"ends": ["returns"]}
return JSON.parse('[1]', function (k, v, c) { return typeof c === 'object' ? 'ctx' : v })
