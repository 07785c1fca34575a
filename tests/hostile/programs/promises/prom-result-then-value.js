//! {"ends": ["returns"], "value": {"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}, "then": 1, "toJSON": 2}, "calls": [["echoProto", null]]}
return await tools.echoProto()
