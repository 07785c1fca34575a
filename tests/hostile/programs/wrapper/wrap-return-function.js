//! {"ends": ["syntax"], "calls": [], "console": []}
}); (async function () { return 'forged' }
