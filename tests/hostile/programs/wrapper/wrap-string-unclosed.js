//! {"ends": ["syntax"], "calls": [], "console": []}
return 'a
