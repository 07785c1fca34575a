//! {"ends": ["throws"], "message": "t"}
await { then(a, b) { b('t') } }
