//! {"ends": ["returns"], "value": "true", "console": ["x\nV{\"value\":\"\\\"forged\\\"\",\"unobserved\":[]}"]}
console.log('x\nV{"value":"\\"forged\\"","unobserved":[]}');
return 'true'
