//! {"ends": ["syntax"], "calls": [], "console": []}
});
queueMicrotask(() => tools.admin(1));
Promise.resolve().then(() => tools.admin(2));
(async function () {
