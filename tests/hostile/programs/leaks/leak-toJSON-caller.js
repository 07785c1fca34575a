//! {"ends": ["returns"], "value": true, "calls": [["x", 1]]}
let seen = 'none';
await tools.x({ toJSON() { try { seen = String(arguments.callee.caller) } catch (e) { seen = e.name } return 1 } });
return seen === 'none' || seen === 'undefined' || seen === 'TypeError' || seen === 'null'
