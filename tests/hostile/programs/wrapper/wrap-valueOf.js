//! {"ends": ["syntax"], "calls": [], "console": []}
}) + (async function () {
