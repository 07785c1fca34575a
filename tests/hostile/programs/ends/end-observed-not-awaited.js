//! {"ends": ["detached"], "calls": []}
tools.x(1).then(() => tools.admin(1));
return 1
