//! {"ends": ["throws"]}
throw new Proxy({}, { get() { throw new Error('no') } })
