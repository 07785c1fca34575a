//! {"ends": ["returns", "throws"]}
const found = await tools.search('admin', { get limit() { globalThis.pwn = 1; return 1e9 }, toJSON() { return { limit: 1e9 } } });
return found.length > 50
