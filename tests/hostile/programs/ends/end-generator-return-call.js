//! {"ends": ["detached"], "calls": [], "exec": {"ends": ["returns"], "calls": [["admin", 1]]}}
function* g() { try { yield 1 } finally { tools.admin(1) } }
for (const x of g()) return x
