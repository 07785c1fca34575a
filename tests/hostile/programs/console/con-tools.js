//! {"ends": ["returns"]}
console.log(tools, tools.x, String(tools.y));
return 1
