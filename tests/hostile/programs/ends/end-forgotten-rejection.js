//! {"ends": ["detached"], "calls": [["fail", 1], ["x", 1]], "exec": {"ends": ["returns"]}}
tools.fail(1);
await tools.x(1);
return 1
