//! {"ends": ["returns"], "value": 1, "console": []}
queueMicrotask(() => queueMicrotask(() => queueMicrotask(() => queueMicrotask(() => queueMicrotask(() => console.log('late'))))));
return 1
