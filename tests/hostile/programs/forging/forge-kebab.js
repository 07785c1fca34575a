//! {"ends": ["returns"], "value": [1], "calls": [["kebab-name", 1]]}
return await tools['kebab-name'](1)
