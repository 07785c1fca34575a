//! {"ends": ["throws"]}
Object.defineProperty(tools, 'x', { get: () => 1 })
