//! {"ends": ["throws"], "calls": [["fail", 1]]}
try { await tools.fail(1) } catch (e) { throw new Proxy(e, {}) }
