//! {"ends": ["throws"]}
throw Object.assign(new Error('d'), { code: 20 })
