//! {"ends": ["returns", "memory", "throws"]}
class A { x = (() => { try { new B() } catch {} })(); }
class B extends A { y = 1; static z = new A() }
return typeof new A()
