//! {"ends": ["returns"], "value": [1, 1]}
const a = Date.now(), b = Date.now(), c = +new Date();
return [b - a, c - b]
