//! {"ends": ["syntax"], "calls": [], "console": []}
`
