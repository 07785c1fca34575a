//! {"ends": ["throws"], "error_name": "RangeError"}
function f() { try { f() } catch (e) { throw e } }
f()
