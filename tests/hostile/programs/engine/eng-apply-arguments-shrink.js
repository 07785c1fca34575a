//! {"ends": ["returns"]}
function f(a) { arguments.length = 1000; a = 1; return Math.max.apply(null, arguments) }
return Number.isNaN(f(2))
