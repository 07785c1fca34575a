//! {"ends": ["returns"], "value": false, "calls": [["fail", 1]]}
try { await tools.fail(1) } catch (e) { return /\.py|site-packages|host-secret|File /.test(e.stack) }
