//! {"ends": ["returns"], "value": [1], "calls": [["kebab-name", 1]], "exec": {"ends": ["throws"], "calls": []}}
return await tools['kebab-name'](1)
