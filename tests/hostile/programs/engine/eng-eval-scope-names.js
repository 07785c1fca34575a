//! {"ends": ["returns"]}
var arguments_ = 1, eval_ = 2;
return (function () { var arguments = 3; return arguments })()
