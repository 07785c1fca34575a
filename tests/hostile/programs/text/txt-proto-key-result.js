//! {"ends": ["returns"], "value": {"__proto__": {"a": 1}, "constructor": 2}}
return JSON.parse('{"__proto__": {"a": 1}, "constructor": 2}')
