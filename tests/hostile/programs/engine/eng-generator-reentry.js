//! {"ends": ["returns"]}
let g;
function* f() { try { g.next() } catch (e) { yield e.name } }
g = f();
return g.next().value
