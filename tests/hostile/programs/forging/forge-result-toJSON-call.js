//! {"ends": ["detached"], "calls": [], "exec": {"ends": ["returns"], "calls": [["admin", 1]]}}
return { toJSON() { tools.admin(1); return 1 } }
