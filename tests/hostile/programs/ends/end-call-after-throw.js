//! {"ends": ["throws"], "calls": []}
queueMicrotask(() => queueMicrotask(() => { tools.admin(1) }));
throw new Error('t')
