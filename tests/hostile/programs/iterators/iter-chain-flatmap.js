//! {"ends": ["throws"], "error_name": "RangeError", "message": "chain too deep"}
let it = [1].values();
for (let i = 0; i < 1e5; i++) it = it.flatMap(x => [x]);
return it.next()
