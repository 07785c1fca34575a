//! {"ends": ["throws"], "calls": []}
throw { get message() { tools.admin(1); return 'm' } }
