//! {"ends": ["detached"], "calls": [["x", 1], ["y", 1]], "exec": {"ends": ["returns"]}}
const a = tools.x(1);
Object.create(a).then;
await tools.y(1);
return 1
