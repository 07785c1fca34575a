//! {"ends": ["returns"], "value": true}
return new Set(Array.from({ length: 1000 }, Math.random)).size > 990
