//! {"ends": ["timeout"]}
for (const k in new Proxy({}, { ownKeys() { for (;;); } }));
