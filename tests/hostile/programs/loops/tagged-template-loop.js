//! {"ends": ["timeout"]}
function t() { for (;;); }
return t`x`
