//! {"ends": ["returns"], "value": [1, "a", true, "1970-01-01T00:00:00.000Z"]}
return [Object(1), Object('a'), Object(true), new Date(0)]
