//! {"ends": ["detached"], "calls": []}
function* g() { try { yield 1 } finally { tools.admin(1) } }
for (const x of g()) return x
