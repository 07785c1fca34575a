//! {"ends": ["timeout", "memory", "throws", "returns"]}
let s = 'aa';
for (;;) s = s.replaceAll('a', 'aaa')
