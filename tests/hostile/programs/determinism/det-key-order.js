//! {"ends": ["returns"], "value": ["1", "2", "b", "a"]}
return Object.keys({ b: 1, 2: 1, a: 1, 1: 1 })
