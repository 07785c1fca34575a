//! {"ends": ["detached"], "calls": []}
return { get a() { tools.admin(1); return 1 } }
