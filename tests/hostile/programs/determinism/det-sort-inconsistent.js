//! {"ends": ["returns"], "value": 5}
return [5, 3, 1, 4, 2].sort(() => 1).length
