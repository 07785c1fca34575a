//! {"ends": ["returns"], "value": [2]}
return [1, 2].values().take(2 ** 53 - 1).drop(1).toArray()
