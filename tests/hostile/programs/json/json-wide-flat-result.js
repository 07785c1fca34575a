//! {"ends": ["returns"], "value": 200000}
return Array(2e5).fill(0).length
