//! {"ends": ["returns"]}
function f() { try { return String(f.caller) } catch (e) { return e.name } }
return [f(), (() => { try { return typeof arguments.callee.caller } catch (e) { return e.name } })()]
