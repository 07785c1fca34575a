//! {"ends": ["returns"]}
const r = /a/g;
r.lastIndex = 2 ** 53;
const s = /a/y;
s.lastIndex = 2 ** 31;
return [r.test('a'), s.test('a')]
