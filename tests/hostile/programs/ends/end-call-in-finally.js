//! {"ends": ["detached"], "calls": []}
try { return 1 } finally { tools.admin(1) }
