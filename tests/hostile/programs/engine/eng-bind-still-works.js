//! {"ends": ["returns"], "value": [[1, 2, 3], "bound f", 1, 7, true]}
function f(a, b) { return [this.x, a, b] }
class A { constructor(v) { this.v = v } }
const g = f.bind({ x: 1 }, 2), B = A.bind(null, 7);
return [g(3), g.name, g.length, new B().v, new B() instanceof A]
