//! {"ends": ["throws"], "sample": "throw-stack-overflow-text"}
throw 'stack overflow'
