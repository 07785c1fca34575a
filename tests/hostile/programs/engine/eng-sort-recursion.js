//! {"ends": ["returns"]}
const a = Array.from({ length: 500 }, (_, i) => 500 - i);
let d = 0;
a.sort((x, y) => { if (d++ < 50) a.sort(); return x - y });
return a.length
