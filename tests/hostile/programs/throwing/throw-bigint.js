//! {"ends": ["throws"], "sample": "throw-bigint"}
throw 10n
