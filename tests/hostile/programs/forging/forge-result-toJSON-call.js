//! {"ends": ["detached"], "calls": []}
return { toJSON() { tools.admin(1); return 1 } }
