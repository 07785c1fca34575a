//! {"ends": ["detached"], "calls": [], "exec": {"ends": ["returns"], "calls": [["admin", 1]]}}
try { return 1 } finally { tools.admin(1) }
