//! {"ends": ["detached"], "calls": [], "exec": {"ends": ["returns"], "calls": [["admin", 1]]}}
return { get a() { tools.admin(1); return 1 } }
