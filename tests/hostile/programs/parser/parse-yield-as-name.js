//! {"ends": ["returns"], "value": 2}
var yield_ = 1, yield = 2;
return yield
