//! {"ends": ["throws", "memory"]}
class A { constructor() { new A() } }
new A()
