//! {"ends": ["syntax"], "calls": [], "console": []}
});
throw new Proxy({}, { get() { tools.admin(1); return 'x' } });
(async function () {
