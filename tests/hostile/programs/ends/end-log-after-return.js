//! {"ends": ["returns"], "value": 1, "console": [], "exec": {"console": ["late"]}}
queueMicrotask(() => queueMicrotask(() => queueMicrotask(() => queueMicrotask(() => queueMicrotask(() => console.log('late'))))));
return 1
