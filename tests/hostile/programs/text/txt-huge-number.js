//! {"ends": ["returns"], "sample": "txt-huge-number", "value": [null, 0, null, 9007199254740992]}
return [1e308*10,-0,NaN,2**53+1]
