//! {"ends": ["returns"]}
return [tools.x === tools.x, tools.x == 1]
