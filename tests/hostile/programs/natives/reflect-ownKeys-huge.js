//! {"ends": ["timeout", "memory", "throws", "returns"]}
const a = new Uint8Array(2e6);
for (;;) Reflect.ownKeys(a)
