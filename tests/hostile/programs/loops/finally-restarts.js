//! {"ends": ["timeout"]}
function f() { try { return 1 } finally { for (;;); } }
return f()
