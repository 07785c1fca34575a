//! {"ends": ["returns"], "value": {"a": 2}}
return JSON.parse('{"a":1,"a":2}')
