//! {"ends": ["returns"], "value": true, "exec": {"value": false}}
const name = 'no' + 'pe';
try { await tools[name](1) } catch (e) { return e.message.includes('nope') }
