//! {"ends": ["detached"], "exec": {"ends": ["returns"], "calls": [["x", 1]]}}
console.log({ toJSON() { return tools.x(1) } });
return 1
