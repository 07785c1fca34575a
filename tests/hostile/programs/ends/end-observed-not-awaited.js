//! {"ends": ["detached"], "calls": [], "exec": {"ends": ["returns"], "calls": [["x", 1], ["admin", 1]]}}
tools.x(1).then(() => tools.admin(1));
return 1
