//! {"ends": ["returns"], "value": [0, "Thu Jan 01 1970 00:00:00 GMT+0000", "2020-07-01T00:00:00.000Z"]}
return [new Date(0).getTimezoneOffset(), new Date(0).toString(), new Date(2020, 6, 1).toISOString()]
