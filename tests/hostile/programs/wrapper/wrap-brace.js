//! {"ends": ["syntax"], "calls": [], "console": []}
}
