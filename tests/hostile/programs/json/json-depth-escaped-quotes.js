//! {"ends": ["returns"], "value": 1}
return ['\\"['.repeat(1000)].length
