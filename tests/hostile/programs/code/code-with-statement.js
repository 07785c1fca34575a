//! {"ends": ["returns"], "value": 1}
with ({ a: 1 }) { return a }
