//! {"ends": ["throws"], "calls": []}
throw tools.x(1)
