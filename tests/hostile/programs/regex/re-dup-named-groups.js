//! {"ends": ["returns", "syntax"]}
return /(?<a>x)|(?<a>y)/.exec('y').groups.a
