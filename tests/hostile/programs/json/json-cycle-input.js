//! {"ends": ["throws"], "error_name": "TypeError"}
const a = {};
a.a = a;
return await tools.x(a)
