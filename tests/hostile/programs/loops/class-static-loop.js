//! {"ends": ["timeout"]}
class A { static { for (;;); } }
