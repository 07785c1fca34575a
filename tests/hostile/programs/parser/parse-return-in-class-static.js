//! {"ends": ["syntax"]}
class A { static { return 1 } }
