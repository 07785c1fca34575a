//! {"ends": ["returns"], "value": [{"a": 0}], "calls": [["x", {"a": 0}]]}
let n = 0;
return await tools.x({ get a() { return n++ } })
