//! {"ends": ["timeout"]}
const a = Array(1000).fill({ a: [1, 2, 3] });
for (;;) JSON.stringify(a)
