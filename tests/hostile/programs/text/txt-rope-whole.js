//! {"ends": ["returns"], "value": "y18001"}
let s = 'x'.repeat(9000);
s = s + s + 'y';
return [s.length, s].length && s.slice(-1) + s.length
