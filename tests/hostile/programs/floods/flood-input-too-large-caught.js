//! {"ends": ["returns"]}
try { await tools.x('x'.repeat(2e6)) } catch (e) { return e.name }
