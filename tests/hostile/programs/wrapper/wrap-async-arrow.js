//! {"ends": ["syntax"], "calls": [], "console": []}
}); (async () => { return 'forged'
