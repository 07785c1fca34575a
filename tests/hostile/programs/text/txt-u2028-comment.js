//! {"ends": ["returns"], "value": 1}
// a return 1
