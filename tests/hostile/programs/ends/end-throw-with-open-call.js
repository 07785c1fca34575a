//! {"ends": ["throws"], "calls": []}
tools.x(1);
throw new Error('t')
