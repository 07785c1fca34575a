//! {"ends": ["returns"], "calls": [["fail", 1]]}
try { await tools.fail(1) } catch (e) { return [e.name, e.message, e.code, String(e), JSON.stringify(e), Reflect.ownKeys(e).map(String)] }
