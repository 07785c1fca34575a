//! {"ends": ["timeout", "memory"]}
function* g() { for (;;) yield 1 }
return [...g()].length
