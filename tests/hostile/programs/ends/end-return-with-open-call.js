//! {"ends": ["detached"], "calls": []}
tools.x(1);
return 1
