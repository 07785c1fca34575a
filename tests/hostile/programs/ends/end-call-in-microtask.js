//! {"ends": ["returns", "detached"], "calls": [], "exec": {"calls": [["admin", 1]]}}
queueMicrotask(() => { try { tools.admin(1) } catch {} });
return 1
