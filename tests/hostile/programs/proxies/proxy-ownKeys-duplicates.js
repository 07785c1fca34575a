//! {"ends": ["serialization"]}
return new Proxy({}, { ownKeys: () => ['a', 'a'] })
