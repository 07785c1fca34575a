//! {"ends": ["timeout"]}
const r = /a/g;
r.lastIndex = { valueOf() { for (;;); } };
r.exec('a')
