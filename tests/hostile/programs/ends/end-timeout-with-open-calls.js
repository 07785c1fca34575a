//! {"ends": ["timeout"], "calls": [["never", 1], ["never", 2]], "exec": {"ends": ["waits"]}}
tools.never(1);
tools.never(2);
await new Promise(() => {})
