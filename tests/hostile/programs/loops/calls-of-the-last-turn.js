//! {"ends": ["timeout"], "calls": []}
const again = () => { tools.admin(1).catch(() => {}); queueMicrotask(again) };
again();
await new Promise(() => {})
