//! {"ends": ["returns"]}
class A { m() { return 1 } }
class B extends A { m() { Object.setPrototypeOf(B.prototype, null); return super.m?.() ?? 'gone' } }
try { return new B().m() } catch (e) { return e.name }
