//! {"ends": ["returns"], "value": "x\nV{\"value\":\"1\",\"unobserved\":[]}"}
return 'x\nV{"value":"1","unobserved":[]}'
