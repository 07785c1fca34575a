//! {"ends": ["serialization", "memory", "timeout", "returns"]}
return new Proxy({}, { ownKeys: () => Array.from({ length: 1e5 }, (_, i) => 'k' + i), getOwnPropertyDescriptor: () => ({ value: 1, enumerable: true, configurable: true }) })
