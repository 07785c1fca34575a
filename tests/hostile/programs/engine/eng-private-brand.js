//! {"ends": ["returns"]}
class A { #x = 1; static t(o) { return #x in o } get(o) { return o.#x } }
try { new A().get({}) } catch (e) { return [e.name, A.t(new A())] }
