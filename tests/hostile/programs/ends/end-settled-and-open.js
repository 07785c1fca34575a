//! {"ends": ["detached"], "calls": [["never", 1], ["x", 2]], "exec": {"ends": ["waits"]}}
const a = tools.never(1);
const b = tools.x(2);
await b;
return 'x'
