//! {"ends": ["syntax"], "calls": [], "console": []}
)
