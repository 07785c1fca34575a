//! {"ends": ["timeout"]}
function f(a = (() => { for (;;); })()) {}
f()
