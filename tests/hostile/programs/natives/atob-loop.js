//! {"ends": ["timeout"]}
const s = btoa('a'.repeat(1e6));
for (;;) atob(s)
