//! {"ends": ["returns", "throws"]}
await yield_control({ toString() { globalThis.n = (globalThis.n || 0) + 1; return 'x'.repeat(1e6) } });
return 1
