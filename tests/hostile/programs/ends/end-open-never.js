//! {"ends": ["detached"], "calls": [["never", 1], ["x", 1]], "exec": {"ends": ["waits"]}}
const a = tools.never(1);
await tools.x(1);
return 1
