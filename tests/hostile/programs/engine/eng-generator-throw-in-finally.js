//! {"ends": ["returns"]}
function* f() { try { yield 1 } finally { yield 2; throw 3 } }
const g = f();
g.next();
const r = [g.return(9).value];
try { g.next() } catch (e) { r.push(e) }
return r
