//! {"ends": ["syntax"], "calls": [], "console": []}
})(); ((async function () { return 1 })
