//! {"ends": ["returns", "detached"], "calls": []}
queueMicrotask(() => { try { tools.admin(1) } catch {} });
return 1
