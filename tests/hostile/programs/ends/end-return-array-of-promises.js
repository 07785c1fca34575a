//! {"ends": ["detached"], "calls": [], "exec": {"ends": ["returns"], "calls": [["x", 1], ["y", 2]]}}
return [tools.x(1), tools.y(2)]
