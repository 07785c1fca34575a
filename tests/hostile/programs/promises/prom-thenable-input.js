//! {"ends": ["returns"], "value": [{"then": 1}], "calls": [["x", {"then": 1}]]}
return await tools.x({ then: 1 })
