//! {"ends": ["returns"], "value": "60000a"}
let s = '';
for (let i = 0; i < 3e4; i++) s += 'ab';
return s.length + s.slice(0, 1)
