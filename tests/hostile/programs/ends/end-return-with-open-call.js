//! {"ends": ["detached"], "calls": [], "exec": {"ends": ["returns"], "calls": [["x", 1]]}}
tools.x(1);
return 1
