//! {"ends": ["throws"], "message": "0"}
throw -0
