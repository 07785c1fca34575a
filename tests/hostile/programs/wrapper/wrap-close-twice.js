//! {"ends": ["syntax"], "calls": [], "console": []}
})();
(async function () { await tools.admin(1) })();
(async function () {
