//! {"ends": ["timeout"]}
const o = { get a() { return this.a2 }, get a2() { for (;;); } };
return o.a
