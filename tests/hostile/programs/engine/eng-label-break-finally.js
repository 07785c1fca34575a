//! {"ends": ["timeout"]}
let n = 0;
outer: for (;;) { try { for (;;) { try { break outer } finally { n++; continue } } } finally { if (n > 100) break outer } if (n > 200) break }
return n > 0
