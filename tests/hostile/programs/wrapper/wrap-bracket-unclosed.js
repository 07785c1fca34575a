//! {"ends": ["syntax"], "calls": [], "console": []}
return [
