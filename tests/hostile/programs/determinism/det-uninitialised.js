//! {"ends": ["returns"], "value": true}
return [...new Float64Array(64)].every(v => v === 0)
