//! {"ends": ["throws"], "error_name": "Error"}
tools.x({ toJSON() { throw new Error('here') } })
