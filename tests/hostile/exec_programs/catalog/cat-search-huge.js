//! {"ends": ["returns", "throws"]}
try { await tools.search('x'.repeat(2e6)) } catch {}
try { await tools.describe('y'.repeat(2e6)) } catch {}
return 1
