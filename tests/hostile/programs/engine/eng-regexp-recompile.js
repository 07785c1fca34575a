//! {"ends": ["returns"]}
const r = /(a)(b)?/g;
let n = 0;
'abab'.replace(r, () => { r.compile('x'.repeat(1000) + '()'.repeat(100), 'g'); n++; return '' });
return n > 0
