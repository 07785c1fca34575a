//! {"ends": ["returns"], "value": ["\ufffd"], "calls": [["x", "\ufffd"]]}
return await tools.x('\ud83d')
