//! {"ends": ["returns"], "value": "Error", "calls": [["fail", 1]]}
return await tools.fail(1).catch(e => e.name)
